"""The feedback page in a browser: links that are void, and people who are no longer asked."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import look_again, press, sent, visits
from support.feedback_pages import rate, running

pytestmark = pytest.mark.slow

expect = playwright.expect
PEOPLE = ["anna", "ben"]


@pytest.fixture
def visit(new_person):  # noqa: F811
    """The browser tells of every link that is refused."""
    return visits(
        lambda url, allowed, _, **options: new_person(url, allowed, "Failed to load", **options)
    )


@pytest.mark.parametrize("people", [[], PEOPLE], ids=["alone", "several"])
def test_what_an_old_link_did_not_send_goes_out_by_the_new_one(visit, folder, people):
    folder.ask([rate(name) for name in "abc"])
    with running(folder, people=people) as server:
        page = visit(server, server.links.get("anna", ""))
        press(page, "1")
        sent(page)
    press(page, "3")
    with running(folder, people=people, new_links=True) as server:
        told = page.locator("#trouble")
        expect(told).to_contain_text("This link is no longer valid. Ask for a new link")
        expect(told).to_contain_text("Your last entry is kept in this browser and sent once you")
        expect(page.locator("main:visible")).to_have_count(0)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.keyboard.press("1")
        page.wait_for_timeout(3000)
        assert asked == []
        other = page.context.new_page()  # another person's link sends nothing of it
        if people:
            other.goto(server.links["ben"])
            expect(other.locator("#items")).to_contain_text("item a")
            assert len(folder.of("anna").view().log.answers) == 1
        other.goto(server.links.get("anna", server.url))
        expect(other.locator("#items")).to_contain_text("item c")
        sent(other)
    mine = folder.of("anna") if people else folder
    assert [(one.question, one.value) for one in mine.view().log.answers] == [("a", -1), ("b", 1)]
    assert not folder.of("ben").view().log.answers


def test_a_link_that_never_worked_says_so_and_works_once_it_is_valid_again(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder, people=PEOPLE) as server:
        link, port = server.links["ben"], server.server_port
    with running(folder, people=["anna"], port=port) as server:
        page = visit(server, link)
        expect(page.locator("#trouble")).to_contain_text("This link is not complete, or no longer")
    with running(folder, people=PEOPLE, port=port):
        look_again(page)  # somebody comes back to it
        expect(page.locator("#items")).to_contain_text("item a")
        expect(page.locator("#trouble")).to_be_hidden()


def test_who_is_no_longer_asked_is_named_to_whoever_runs_it_and_counted_for_others(visit, folder):
    folder.ask([rate(name) for name in "abcde"])
    for name in "abcd":
        folder.of("ben").answer(name, 1)
    folder.of("carl").skip("a")  # nothing of his counts
    with running(folder, people=["anna"]) as server:
        page = visit(server)
        rows = page.locator("#people tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.nth(1)).to_contain_text("ben (no longer asked)4")
        asked = visit(server, server.links["anna"])
        expect(asked.locator("#why")).to_contain_text(
            "What 1 person has said who is no longer asked counts, too."
        )
        assert "ben" not in asked.content()


def test_a_persons_link_to_the_overview_shows_no_empty_tables(new_person, folder):  # noqa: F811
    with running(folder, people=PEOPLE) as server:
        key = server.links["anna"].partition("#")[2]
        place = server.url.partition("#")[0]
        page = new_person(f"{place}#{key}", [server.site], "404")
        expect(page.locator("#trouble")).to_contain_text("not complete, or no longer valid")
        expect(page.locator("#overview")).to_be_hidden()
