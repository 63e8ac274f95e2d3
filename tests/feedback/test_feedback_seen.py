"""The feedback page in a real browser: only what was seen is answered, and doubt is no answer."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import click, count, press, sent
from support.feedback_pages import rate, running

from fedrl.feedback.queries import Answer
from fedrl.feedback.store import Progress

pytestmark = pytest.mark.slow

expect = playwright.expect


def looked(page):
    """Long enough at what is on the screen."""
    expect(page.locator("#question")).to_be_visible()
    page.wait_for_timeout(800)


def test_a_double_click_answers_one_question(visit, folder):
    folder.ask([rate(name) for name in "abcdef"])
    with running(folder) as server:
        page = visit(server)
        looked(page)
        page.get_by_role("button", name="Too low").dblclick()
        expect(page.locator(".item")).to_contain_text("item b")
        looked(page)
        page.get_by_role("button", name="Too high").click(click_count=3)
        expect(page.locator(".item")).to_contain_text("item c")
        sent(page)
    assert folder.answers() == [Answer("a", 1), Answer("b", -1)]


def test_a_slow_double_click_answers_one_question_and_later_clicks_count(visit, folder):
    """Some people's double click takes a second; their system says which click is the second."""
    folder.ask([rate(name) for name in "abcdef"])
    with running(folder) as server:
        page = visit(server)
        button = page.get_by_role("button", name="Too low")
        for detail in (1, 2, 3):
            looked(page)
            button.dispatch_event("click", {"detail": detail})
        sent(page)
    assert [answer.question for answer in folder.answers()] == ["a", "b"]


def test_a_double_click_on_undo_takes_one_entry_back(visit, folder):
    folder.ask([rate(name) for name in "abcd"])
    with running(folder) as server:
        page = visit(server)
        press(page, "123")
        sent(page)
        page.get_by_role("button", name="Undo").dblclick()
        expect(page.locator(".item")).to_contain_text("item c")
        sent(page)
    assert folder.answers() == [Answer("a", -1), Answer("b", 0)]


def test_keys_that_come_before_a_question_is_seen_answer_nothing(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(30)])
    with running(folder) as server:
        page = visit(server)
        looked(page)
        page.evaluate(
            "keys => { for (const key of keys) document.dispatchEvent("
            "new KeyboardEvent('keydown', { key, bubbles: true })) }",
            "1232112333",
        )
        page.keyboard.type("331")
        expect(page.locator(".item")).to_contain_text("item q1")
        sent(page)
    assert folder.answers() == [Answer("q0", -1)]


@pytest.mark.parametrize("key", ["3", "Enter", " "])
def test_a_key_held_down_is_one_answer(visit, folder, key):
    folder.ask([rate(name) for name in "abcde"])
    with running(folder) as server:
        page = visit(server)
        looked(page)
        page.get_by_role("button", name="Too low").focus()
        for _ in range(4):
            page.keyboard.down(key)  # without `up`: the browser reports repetitions
            page.wait_for_timeout(700)
        page.keyboard.up(key)
        sent(page)
        count(page, "4 left")
    assert folder.answers() == [Answer("a", 1)]


def test_a_long_text_is_read_by_keys_and_not_answered(visit, folder):
    folder.ask([rate("a", "word " * 900), rate("b")])
    with running(folder) as server:
        page = visit(server, viewport={"width": 1100, "height": 700})
        looked(page)
        text = page.locator(".item p")
        text.focus()
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(300)
        assert text.evaluate("text => text.scrollTop") > 0
        expect(text).to_contain_text("word")
        page.keyboard.press("2")
        expect(page.locator(".item")).to_contain_text("item b")
        sent(page)
    assert folder.answers() == [Answer("a", 0)]


def test_a_press_counts_for_the_question_that_was_there_when_it_began(visit, folder):
    """Another tab answers while the pointer is down: its release is no answer to the next one."""
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        looked(page)
        page.get_by_role("button", name="Too low").hover()
        page.mouse.down()
        folder.answer("a", -1)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it looks again
        expect(page.locator(".item")).to_contain_text("item b")
        looked(page)
        page.mouse.up()
        expect(page.locator(".item")).to_contain_text("item b")
        sent(page)
    assert folder.answers() == [Answer("a", -1)]


def test_a_question_in_a_tab_that_is_not_looked_at_is_not_answered(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        looked(page)
        hide = (
            "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, "
            "configurable: true }); document.dispatchEvent(new Event('visibilitychange')) }"
        )
        page.evaluate(hide, True)
        looked(page)
        page.keyboard.press("3")
        page.evaluate(hide, False)
        page.keyboard.press("3")  # it has only just come back
        looked(page)
        page.keyboard.press("1")
        sent(page)
    assert folder.answers() == [Answer("a", -1)]


def test_going_back_to_an_old_page_answers_nothing_twice(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(6)])
    with running(folder) as server:
        page = visit(server)
        looked(page)
        page.keyboard.press("3")
        page.goto(server.url.replace("#", "?again#"))
        press(page, "1")
        sent(page)
        page.go_back()
        expect(page.locator(".item")).to_contain_text("item q2")
        press(page, "3")
        sent(page)
        count(page, "3 left")
    assert folder.answers() == [Answer("q0", 1), Answer("q1", -1), Answer("q2", 1)]


def test_a_slow_server_is_answered_once_for_each_question(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(6)])
    with running(folder) as server:
        page = visit(server)
        slow = []
        page.route("**/entries", lambda route: slow.append(route))
        press(page, "13")
        page.reload()  # while the first is on its way
        for route in slow:
            route.abort("connectionreset")
        page.unroute("**/entries")
        press(page, "2")
        sent(page)
        count(page, "3 left")
    assert folder.answers() == [Answer("q0", -1), Answer("q1", 1), Answer("q2", 0)]


def test_a_sitting_that_ends_is_not_begun_again_by_the_same_double_click(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(6)])
    with running(folder, limit=1) as server:
        page = visit(server)
        looked(page)
        page.get_by_role("button", name="About right").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Go on with 1 more")).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_timeout(300)
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
        sent(page)
    assert folder.answers() == [Answer("q0", 0)]


# Cannot say, and skip -----------------------------------------------------------------------------


def test_doubt_is_no_answer_and_is_not_asked_again(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        click(page, "Cannot say")
        expect(page.locator(".item")).to_contain_text("item b")
        count(page, "2 left")
        expect(page.locator("#recent b")).to_have_text(["Cannot say"])
        expect(page.get_by_role("status")).to_contain_text("Cannot say. Is this guess")
        press(page, "02u")  # cannot say, about right, and that taken back
        expect(page.locator(".item")).to_contain_text("item c")
        press(page, "0")
        expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is left to answer")
        sent(page)
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text("Nothing is left to answer")
        page.keyboard.press("u")
        expect(page.locator(".item")).to_contain_text("item c")
        press(page, "3")
        sent(page)
    assert folder.answers() == [Answer("c", 1)]
    assert folder.progress() == Progress(answered=1, pending=0, sitting=1, unsure=2)


def test_a_skipped_question_comes_last_and_a_reload_keeps_it_there(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        click(page, "Skip")
        expect(page.locator(".item")).to_contain_text("item b")
        expect(page.get_by_role("status")).to_contain_text("Skipped. Is this guess right?")
        sent(page)
        page.reload()
        expect(page.locator(".item")).to_contain_text("item b")
        press(page, "s")
        expect(page.locator(".item")).to_contain_text("item c")
        press(page, "u")  # the skip is taken back
        expect(page.locator(".item")).to_contain_text("item b")
        count(page, "3 left")
        press(page, "11")
        expect(page.locator(".item")).to_contain_text("item a")
        expect(page.get_by_role("button", name="Skip")).to_be_disabled()  # nothing else waits
        press(page, "s3")
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you, all answered")
        sent(page)
    assert folder.answers() == [Answer("b", -1), Answer("c", -1), Answer("a", 1)]


def test_skips_go_behind_questions_that_the_page_does_not_hold_yet(visit, folder):
    names = [f"q{number}" for number in range(45)]  # five more than it holds ready
    folder.ask([rate(name) for name in names])
    with running(folder) as server:
        page = visit(server)
        press(page, "s1s")
        expect(page.locator(".item")).to_contain_text("item q3")
        sent(page)
    assert [one.id for one in folder.pending()] == [*names[3:], "q0", "q2"]


def test_touch_and_tab_reach_everything(visit, folder):
    folder.ask([rate(name) for name in "abcd"])
    with running(folder) as server:
        page = visit(server, has_touch=True, is_mobile=True, viewport={"width": 360, "height": 640})
        looked(page)
        answers = ("Too high", "About right", "Too low", "Cannot say", "Skip")
        for name in ("Questions", "My answers", "What changed", "", *answers):
            page.keyboard.press("Tab")
            button = page.get_by_role("button", name=name)
            expect(button if name else page.get_by_text("What this is about")).to_be_focused()
        for name in ("Too low", "Cannot say", "Skip"):
            expect(page.locator("body.seen")).to_be_attached()
            button = page.get_by_role("button", name=name)
            expect(button).to_be_in_viewport(ratio=1)
            assert button.bounding_box()["height"] >= 40  # a finger's
            button.tap()
        expect(page.locator(".item")).to_contain_text("item d")
        expect(page.locator(".item")).to_be_in_viewport(ratio=1)
        page.keyboard.press("Tab")  # the note
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Undo")).to_be_focused()
        sent(page)
    assert folder.answers() == [Answer("a", 1)]
    assert [one.id for one in folder.pending()] == ["d", "c"]
