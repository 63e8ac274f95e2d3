"""The feedback page in a real browser: nothing is drawn anew that is as it was, and nothing answers
for a person who is not typing."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import DESKTOP, look_again, part, press, sent
from support.feedback_pages import rate, running

from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation
from fedrl.feedback.queries import Answer

pytestmark = pytest.mark.slow

expect = playwright.expect
FILM = (Recommendation("A film", 4.5),)
ZOOMED = {"width": 320, "height": 400}
WATCH = """(names) => {
  const what = { childList: true, characterData: true, subtree: true };
  window.drawn = [];
  const watch = new MutationObserver((all) => window.drawn.push(...all.map((one) =>
    (one.target.closest?.("[id]") ?? one.target.parentElement).id)));
  for (const name of names)
    watch.observe(document.getElementById(name), what);
}"""


def drawn_anew(page, *names):
    """Of these, what a page draws while it looks at the server again and again."""
    page.evaluate(WATCH, list(names))
    for _ in range(3):
        with page.expect_response("**/state"):
            look_again(page)
        page.wait_for_timeout(200)
    return page.evaluate("window.drawn")


def test_a_conflict_is_said_once(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        cards = page.locator(".conflict")
        for place, name in enumerate("ab"):
            expect(page.locator(".item")).to_contain_text(f"item {name}")
            folder.answer(name, -1)
            press(page, "3")
            expect(cards).to_have_count(place + 1)
            cards.first.evaluate("card => { card.first = true }")
        assert cards.first.evaluate("card => card.first")  # the second came beside it
        assert drawn_anew(page, "conflicts", "recent") == []
        first = page.get_by_role("button", name="Keep “Too high”").first
        first.dblclick()  # the second card is where the first was
        expect(cards).to_have_count(1)
        page.get_by_role("button", name="Use “Too low”").click()
        expect(page.locator("#conflicts")).to_be_hidden()
        sent(page)
    assert folder.answers() == [Answer("a", -1), Answer("b", 1)]


def test_trouble_is_said_once(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator("#question")).to_be_visible()
    look_again(page)
    expect(page.locator("#trouble")).to_contain_text("No connection just now")
    page.evaluate(WATCH, ["trouble"])
    page.wait_for_timeout(2500)  # it tries again by itself
    assert page.evaluate("window.drawn") == []
    expect(page.locator("#trouble")).to_contain_text("No connection just now")


def test_what_changed_and_my_answers_are_not_drawn_anew_while_they_are_read(visit, folder):
    folder.ask([rate(name) for name in "ab"])
    folder.answer("a", 1)
    effect.write(folder, Effect("films", 1, FILM, FILM), folder.given())
    with running(folder) as server:
        page = visit(server)
        part(page, "What changed")
        expect(page.locator("#sides .film")).to_have_count(2)
        assert drawn_anew(page, "effect-view") == []
        part(page, "My answers")
        expect(page.get_by_role("combobox")).to_have_count(1)
        assert drawn_anew(page, "history") == []


def test_the_overview_is_not_drawn_anew_while_it_is_read(visit, folder):
    folder.ask([rate("a")])
    with running(folder, people=["anna", "ben"]) as server:
        page = visit(server)
        page.clock.install()
        page.reload()
        expect(page.locator("#people tbody tr")).to_have_count(2)
        page.evaluate(WATCH, ["overview"])
        for _ in range(2):
            with page.expect_response("**/overview"):
                page.clock.run_for(6000)
            page.wait_for_timeout(100)
        assert page.evaluate("window.drawn") == []
        folder.of("anna").answer("a", 1)
        page.clock.run_for(6000)
        expect(page.locator("#people tbody")).to_contain_text("anna100")


@pytest.mark.parametrize("size", [ZOOMED, DESKTOP], ids=["zoomed", "desktop"])
def test_keys_can_be_switched_off_and_stay_off(visit, folder, size):
    """Who speaks to a computer answers by every word that is heard as letters."""
    folder.ask([rate(name) for name in "abcde"])
    with running(folder) as server:
        page = visit(server, viewport=size)
        press(page, "1")
        switch = page.get_by_role("checkbox", name="Answer by single keys")
        button = page.get_by_role("button", name="Too low")
        expect(button).to_have_attribute("aria-keyshortcuts", "ArrowRight 3")
        other = page.context.new_page()
        other.goto(server.url)
        expect(other.locator("#question")).to_be_visible()
        switch.uncheck()
        expect(other.get_by_role("checkbox", name="Answer by single keys")).not_to_be_checked()
        for tab in (page, other):
            tab.locator("body").press("Tab")
            expect(tab.get_by_role("button", name="Undo")).not_to_have_attribute(
                "aria-keyshortcuts", "u Backspace"
            )
            press(tab, ["3", "s", "u", "0", "ArrowLeft", "Backspace"])
            expect(tab.locator(".item")).to_contain_text("item b")
            expect(tab.locator("#recent li")).to_have_count(1)
        page.reload()
        press(page, "321")
        expect(page.locator(".item")).to_contain_text("item b")
        expect(page.locator("kbd").filter(visible=True)).to_have_count(0)
        button.focus()
        press(page, ["Enter"])  # a button is no shortcut
        expect(page.locator(".item")).to_contain_text("item c")
        switch.check()
        press(page, "2")
        expect(page.locator(".item")).to_contain_text("item d")
        sent(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert folder.answers() == [Answer("a", -1), Answer("b", 1), Answer("c", 0)]
