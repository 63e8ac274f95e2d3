"""The feedback page in a browser: entries outlive what a browser or a clock may do to them."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import press, sent
from support.feedback_pages import rate, running

from fedrl.feedback.queries import Answer

pytestmark = pytest.mark.slow

expect = playwright.expect
NO_STORAGE = """Object.defineProperty(window, "localStorage",
  { get() { throw new DOMException("not allowed", "SecurityError"); } })"""


def test_a_browser_that_keeps_nothing_can_answer(visit, folder):
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        page = visit(server)
        page.add_init_script(NO_STORAGE)
        page.reload()
        press(page, "13")
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you, all answered")
        expect(page.locator("#saved")).to_be_visible()
    assert folder.answers() == [Answer("a", -1), Answer("b", 1)]


def test_entries_are_sent_in_their_order_after_the_clock_was_set_back(visit, folder):
    """Without a connection, over a reload: an undo that overtook its answer would do nothing."""
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator("body.seen")).to_be_attached()
        page.route("**/entries", lambda route: route.abort("connectionrefused"))
        press(page, "1")
        page.evaluate("Date.now = () => 1000")
        press(page, "u")
        press(page, "3")
        page.unroute("**/entries")
        page.reload()
        sent(page)
        expect(page.locator(".item")).to_contain_text("item b")
    assert folder.answers() == [Answer("a", 1)]
