"""The feedback page in a real browser: a person is told what was kept, and what became of it."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import DESKTOP, PHONE, click, part, press, sent
from support.feedback_pages import compare, rate, running
from support.repository import DOCS

from fedrl.feedback.queries import Query

pytestmark = pytest.mark.slow

expect = playwright.expect
SEEN = (
    "if few people answer, all who take part and whoever runs it can see how you judged films, "
    "and it stays."
)
LOW, SMALL = {"width": 360, "height": 640}, {"width": 390, "height": 844}


def test_on_a_phone_nothing_covers_a_text_that_is_to_be_judged(visit, folder):
    """Buttons that lie over a text can be pressed before it was read."""
    texts = tuple(f"Once {word} " + "and so it went on " * 20 for word in ("more", "less"))
    query = Query("c", "compare", ("1", "2"), texts, (0.5, 0.5), "Once")
    folder.ask([query, rate("d"), rate("e")])
    with running(folder) as server:
        page = visit(server, viewport=PHONE)
        expect(page.locator("body.seen")).to_be_attached()
        boxes = [one.bounding_box() for one in page.locator(".item p").all()]
        first = page.locator(".choice").first
        assert first.bounding_box()["y"] >= max(one["y"] + one["height"] for one in boxes)
        assert page.evaluate(
            "[...document.querySelectorAll('.item p')].every("
            "(one) => one.scrollHeight <= one.clientHeight + 1)"
        )
        first.click()
        expect(page.locator(".item")).to_contain_text("item d")
        click(page, "Too high")  # what it is about is folded from now on
        expect(page.locator(".item")).to_contain_text("item e")
        expect(first).to_be_in_viewport(ratio=1)  # a film is short: they stay at hand
        sent(page)


@pytest.mark.parametrize("size", [LOW, PHONE, SMALL], ids=["low", "phone", "larger"])
def test_no_button_lies_over_a_guess_while_it_is_told_what_this_is_about(visit, folder, size):
    folder.ask([rate(name, "A film with a name that is rather long (2001)") for name in "ab"])
    with running(folder) as server:
        page = visit(server, viewport=size)
        expect(page.locator("#who-reads")).to_contain_text(SEEN)
        guess, first = page.locator(".item .score"), page.locator(".choice").first
        for _ in "ab":
            box = guess.bounding_box()
            assert box["y"] + box["height"] <= first.bounding_box()["y"]
            click(page, "Too low")
            sent(page)
            if page.locator("#quiet").is_visible():
                break
            expect(page.locator("#why")).to_be_hidden()
    assert len(folder.answers()) == 2


def test_a_press_on_what_covers_the_guess_shows_it_and_is_no_answer(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server, viewport=PHONE)
        click(page, "Too low")
        sent(page)
        page.locator("#intro").evaluate("one => { one.style.paddingBottom = '400px'; }")
        guess = page.locator(".item .score")
        top = page.locator(".choices").bounding_box()["y"]
        assert guess.bounding_box()["y"] > top
        click(page, "Too high")
        expect(page.locator(".item")).to_contain_text("item b")
        page.wait_for_timeout(300)
        box = guess.bounding_box()
        assert box["y"] + box["height"] <= top
        assert len(folder.answers()) == 1
        click(page, "Too high")
        expect(page.locator(".item")).to_contain_text("item c")
        sent(page)
    assert len(folder.answers()) == 2


def test_deletion_is_told_in_the_same_words_everywhere(visit, folder):
    folder.ask([rate("a")])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        part(page, "My answers")
        told = page.locator("#deleting").text_content()
        page.get_by_role("button", name="Delete all my answers").click()
        expect(page.get_by_role("dialog")).to_contain_text(told)
        expect(page.get_by_role("dialog")).to_contain_text(
            "You will not be asked about these again"
        )
        assert SEEN in told
        for place in ("#who-reads", "#where"):
            assert SEEN in page.locator(place).text_content()
    for name in ("feedback.md", "start/person.md"):
        text = " ".join((DOCS / name).read_text("utf-8").split())
        assert told in text, name
        assert "see which films" not in text, name


def test_two_texts_begin_on_one_line(visit, folder):
    folder.ask([compare("c", "short", "a longer one " * 20)])
    with running(folder) as server:
        page = visit(server, viewport=DESKTOP)
        expect(page.locator(".item p")).to_have_count(2)
        page.wait_for_timeout(300)  # they come in
        tops = [one.bounding_box()["y"] for one in page.locator(".item p").all()]
        assert tops[0] == pytest.approx(tops[1], abs=1)


def test_what_is_kept_is_shown_to_those_who_look(visit, folder):
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator("#saved")).to_be_hidden()
        press(page, "1")
        expect(page.locator("#saved")).to_be_visible()
        part(page, "My answers")
        page.get_by_label("Your answer: item a", exact=True).select_option("About right")
        expect(page.locator("#toast")).to_be_visible()
        expect(page.locator("#toast")).to_have_text("Changed to About right")
        expect(page.locator("#toast")).to_be_hidden()
        sent(page)
        page.get_by_label("Delete your answer: item a").click()
        asked = page.get_by_role("dialog")
        expect(asked).to_contain_text("about “item a”?")
        expect(asked).to_contain_text("not be asked about it again")
        asked.get_by_role("button", name="Delete").click()
        expect(page.locator("#toast")).to_have_text("Deleted")
        expect(page.locator("#history")).to_have_text("You have no answers here now.")
        sent(page)


def test_without_a_connection_nothing_looks_lost(visit, folder):
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        one = visit(server)
        press(one, "1")
        sent(one)
        two = visit(server)
        part(two, "My answers")
        expect(two.get_by_role("combobox")).to_have_count(1)
    part(one, "My answers")
    part(two, "My answers")  # again: it asks at once
    for page in (one, two):
        expect(page.locator("#trouble")).to_contain_text("No connection just now. Nothing is lost")
    expect(one.locator("#history")).to_contain_text("cannot be shown just now; nothing is lost")
    expect(one.get_by_role("button", name="Delete all my answers")).to_be_disabled()
    expect(two.get_by_role("combobox")).to_have_count(1)
    with running(folder):
        expect(one.get_by_role("combobox")).to_have_count(1)
        expect(one.get_by_role("button", name="Delete all my answers")).to_be_enabled()


def test_an_answer_that_was_deleted_elsewhere_stays_deleted(visit, folder):
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator(".item")).to_contain_text("item a")
        folder.answer("a", -1)
        folder.forget("a")
        press(page, "3")
        told = page.get_by_role("alert", name="Answered in two places")
        expect(told).to_contain_text("it stays deleted")
        expect(told).not_to_contain_text("Which one")
        told.get_by_role("button", name="OK").click()
        expect(told).to_be_hidden()
        sent(page)
    assert folder.answers() == []


def test_the_overview_tells_what_texts_begin_with_and_says_nothing_twice(visit, folder):
    texts = ("Once more", "Once less")
    folder.ask([Query("c", "compare", ("1", "2"), texts, (0.5, 0.5), "Once")])
    with running(folder, people=["anna", "ben"]) as server:
        page = visit(server)
        expect(page.locator("#agreement")).to_have_text(
            "No question has been answered by two people yet."
        )
        expect(page.locator("section", has=page.locator("#agreement")).locator("p")).to_have_count(
            1
        )
        folder.of("anna").answer("c", -1)
        folder.of("ben").answer("c", 1)
        page.reload()  # it looks by itself, but not at once
        expect(page.locator("#disputed tbody td").first).to_have_text("Once … more · … less")
        expect(page.locator("#agreement")).to_contain_text(
            "how far answers are apart: the answer in the middle is nearer to either end"
        )
        folder.of("ben").change("c", 0, comment="on a rainy day")
        page.reload()
        cells = page.locator("#notes tbody td")
        expect(cells).to_have_text(["ben", "on a rainy day", "… more · … less"])


def test_half_a_link_to_the_overview_says_so_and_shows_no_empty_tables(new_person, folder):  # noqa: F811
    with running(folder, people=["anna", "ben"]) as server:
        page = new_person(server.url[:-3], [server.site], "403")
        expect(page.locator("#trouble")).to_contain_text("This link is not complete")
        expect(page.get_by_role("heading", level=1)).to_be_hidden()


def test_keys_are_explained_where_they_answer_and_targets_fit_a_finger(visit, folder):
    folder.ask([rate("a"), rate("b")])
    small = """[...document.querySelectorAll("button, select, textarea, summary")].filter((one) => {
      const { width, height } = one.getBoundingClientRect();
      return height && (height < 44 || width < 44);
    }).map((one) => one.outerHTML)"""
    with running(folder) as server:
        for size in (PHONE, DESKTOP):
            page = visit(server, viewport=size)
            expect(page.locator("#question")).to_be_visible()
            if size is PHONE:
                press(page, "1")
                sent(page)
            page.get_by_text("Add a note").click()
            expect(page.locator("#keys")).to_be_visible(visible=size is DESKTOP)
            assert page.evaluate(small) == []
            part(page, "My answers")
            expect(page.get_by_role("combobox")).to_have_count(1)
            expect(page.locator("#keys")).to_be_hidden()
            assert page.evaluate(small) == []


def test_a_phone_has_no_keys_and_what_was_said_can_be_deleted_without_scrolling_past_it(
    visit, folder
):
    names = "abcdefgh"
    folder.ask([rate(name) for name in names])
    for name in names[1:]:
        folder.answer(name, 1)
    with running(folder) as server:
        page = visit(server, viewport=PHONE, has_touch=True, is_mobile=True)
        expect(page.locator("#question")).to_be_visible()
        for hidden in ("#switch", "#keys", "#undo kbd"):
            expect(page.locator(hidden)).to_be_hidden()
        expect(page.locator("body.seen")).to_be_attached()
        page.get_by_role("button", name="Too low").tap()
        sent(page)
        part(page, "My answers")
        every = page.get_by_role("button", name="Delete all my answers")
        expect(every).not_to_be_in_viewport()
        page.get_by_role("button", name="Download or delete all").tap()
        expect(every).to_be_in_viewport()


def test_no_frame_stays_where_a_finger_was(visit, folder):
    """A touch leaves the pointer over the button, and so over the next question's."""
    folder.ask([rate(name) for name in "ab"])
    frame = "(one) => getComputedStyle(one).borderColor"
    with running(folder) as server:
        page = visit(server, viewport=PHONE, has_touch=True, is_mobile=True)
        expect(page.locator("body.seen")).to_be_attached()
        low, high = (page.get_by_role("button", name=name) for name in ("Too low", "Too high"))
        plain = high.evaluate(frame)
        low.tap()
        expect(page.locator("#items")).to_contain_text("item b")
        page.wait_for_timeout(600)
        assert low.evaluate(frame) == plain
        sent(page)


def test_a_long_name_makes_no_page_wider_than_the_screen(visit, folder):
    folder.ask([rate("a"), rate("b")])
    name = "maximiliane-" * 3
    with running(folder, people=[name]) as server:
        page = visit(server, link=server.links[name], viewport={"width": 320, "height": 480})
        press(page, "1")
        expect(page.locator("#saved")).to_be_visible()
        expect(page.locator("#count")).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        sent(page)
