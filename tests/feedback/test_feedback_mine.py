"""My answers in a real browser, while they change elsewhere: no key and no click reaches another
answer, and what is deleted is gone from the browser, too."""

from __future__ import annotations

import contextlib

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import look_again, part, press, sent
from support.feedback_pages import rate, running

from fedrl.feedback.queries import Answer

pytestmark = pytest.mark.slow

expect = playwright.expect
SECRET = "a secret note"
KEPT = "JSON.stringify({ ...localStorage })"


def answer(page, name):
    return page.get_by_role("combobox", name=f"Your answer: item {name}")


def delete(page, name):
    page.get_by_role("button", name=name).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()


def conflict(page, folder, name):
    """Here something else is said than on another device, with a note."""
    expect(page.locator(".item")).to_contain_text(f"item {name}")
    folder.answer(name, -1)
    page.get_by_text("Add a note").click()
    page.get_by_label("A note to your answer").fill(SECRET)
    page.get_by_label("A note to your answer").blur()
    press(page, "3")
    expect(page.locator("#conflicts")).to_contain_text(SECRET)


@contextlib.contextmanager
def my_answers(visit, folder, names: str):
    """The page at My answers, with "too high" to each."""
    folder.ask([rate(name) for name in names])
    for name in names:
        folder.answer(name, -1)
    with running(folder) as server:
        page = visit(server)
        part(page, "My answers")
        yield page


def test_a_key_changes_the_answer_it_was_meant_for_though_others_came_before_it(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    for name in "ab":
        folder.answer(name, -1)
    with running(folder) as server:
        page = visit(server)
        part(page, "My answers")
        expect(page.get_by_role("combobox")).to_have_count(2)
        answer(page, "a").focus()
        folder.answer("c", -1)  # on the phone
        look_again(page)
        expect(page.get_by_role("combobox")).to_have_count(3)
        expect(answer(page, "a")).to_be_focused()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        sent(page)
        expect(page.locator("#conflicts")).to_be_hidden()
    assert folder.answers() == [Answer("a", 1), Answer("b", -1), Answer("c", -1)]


def test_a_key_after_its_answer_was_deleted_elsewhere_changes_nothing(visit, folder):
    with my_answers(visit, folder, "abc") as page:
        answer(page, "b").focus()
        folder.forget("b")
        look_again(page)
        expect(page.get_by_role("combobox")).to_have_count(2)
        for key in ("ArrowDown", "1", "Enter", " "):
            page.keyboard.press(key)
        page.keyboard.press("Tab")
        expect(answer(page, "a")).to_be_focused()  # on from there
        sent(page)
    assert folder.answers() == [Answer("a", -1), Answer("c", -1)]


def test_an_answer_under_a_persons_hands_is_not_overwritten_unnoticed(visit, folder):
    folder.ask([rate(name) for name in "ab"])
    folder.answer("a", -1)
    with running(folder) as server:
        page = visit(server)
        part(page, "My answers")
        answer(page, "a").focus()
        folder.change("a", 0)
        look_again(page)
        expect(answer(page, "a")).to_have_value("-1")
        answer(page, "a").select_option("Cannot say")
        expect(page.locator("#conflicts")).to_contain_text("you have said “About right”. Here you")
        page.get_by_role("button", name="Keep “About right”").click()
        expect(answer(page, "a")).to_have_value("0")
        sent(page)
    assert folder.answers() == [Answer("a", 0)]


def test_a_note_to_what_was_deleted_elsewhere_is_not_taken_from_under_the_hands(visit, folder):
    with my_answers(visit, folder, "ab") as page:
        note = page.get_by_label("Your note: item b")
        note.press_sequentially("half a no")
        folder.forget("b")
        folder.change("a", 1)
        look_again(page)
        expect(answer(page, "a")).to_have_value("1")
        note.press_sequentially("te")
        note.blur()
        expect(page.locator("#conflicts")).to_contain_text("it stays deleted")
        expect(page.locator("#conflicts")).to_contain_text("half a note")
        expect(page.get_by_role("combobox")).to_have_count(1)
        page.get_by_role("button", name="OK").click()
        sent(page)


def test_a_note_that_is_left_for_a_button_costs_no_click(visit, folder):
    """The note is kept when the pointer goes down: the button must still be there when it is up."""
    with my_answers(visit, folder, "ab") as page:
        page.get_by_label("Your note: item b").fill("one")
        delete(page, "Delete your answer: item a")
        expect(page.get_by_role("combobox")).to_have_count(1)
        sent(page)
    assert folder.answers() == [Answer("b", -1)]
    assert folder.view().log.standing("b").comment == "one"


def test_a_double_click_on_delete_only_asks(visit, folder):
    folder.ask([rate("a")])
    folder.answer("a", 1)
    with running(folder) as server:
        page = visit(server)
        part(page, "My answers")
        page.get_by_role("button", name="Delete your answer: item a").click()
        for name in ("Delete", "Keep"):  # the second click falls where the dialog has come
            page.get_by_role("dialog").get_by_role("button", name=name).dispatch_event(
                "click", {"detail": 2}
            )
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        sent(page)
    assert folder.answers() == [Answer("a", 1)]


def test_what_is_decided_in_one_tab_is_not_asked_in_the_other(visit, folder):
    folder.ask([rate(name) for name in "ab"])
    with running(folder) as server:
        page = visit(server)
        conflict(page, folder, "a")
        other = page.context.new_page()
        other.goto(server.url)
        expect(other.locator("#conflicts")).to_contain_text(SECRET)
        page.get_by_role("button", name="Use “Too low”").click()
        expect(other.locator("#conflicts")).to_be_hidden()
        sent(page)
    assert folder.answers() == [Answer("a", 1)]


def test_what_is_deleted_leaves_no_conflict_in_any_tab(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        conflict(page, folder, "a")
        other = page.context.new_page()
        other.goto(server.url)
        expect(other.locator("#conflicts")).to_contain_text(SECRET)
        part(page, "My answers")
        delete(page, "Delete your answer: item a")
        for tab in (page, other):
            expect(tab.locator("#conflicts")).to_be_hidden()
            assert SECRET not in tab.content()
        sent(page)
        assert SECRET not in page.evaluate(KEPT)


def test_delete_all_leaves_nothing_in_the_browser(visit, folder):
    folder.ask([rate(name) for name in "abcd"])
    with running(folder) as server:
        page = visit(server)
        conflict(page, folder, "a")
        page.get_by_text("Add a note").click()
        page.get_by_label("A note to your answer").fill(SECRET)  # a draft
        page.get_by_role("button", name="Skip").click()
        other = page.context.new_page()
        other.goto(server.url)
        expect(other.locator("#conflicts")).to_contain_text(SECRET)
        part(page, "My answers")
        delete(page, "Delete all my answers")
        expect(page.get_by_role("list", name="My answers")).to_be_focused()  # and not nothing
        for tab in (page, other):
            expect(tab.locator("#conflicts")).to_be_hidden()
            assert SECRET not in tab.content()
        assert SECRET not in page.evaluate(KEPT)
        part(page, "Questions")
        for _ in "bcd":
            expect(page.locator("#note")).to_have_value("")
            press(page, "1")
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you, all answered")
        sent(page)
    assert SECRET not in (folder.path / "answers.jsonl").read_text()


def test_what_is_on_its_way_does_not_arrive_after_all_was_deleted(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    folder.answer("a", 1)
    with running(folder) as server:
        page = visit(server)
        part(page, "My answers")
        expect(answer(page, "a")).to_be_visible()
        slow = []
        page.route("**/entries", lambda route: slow.append(route))
        answer(page, "a").select_option("Too high")
        page.get_by_label("Your note: item a").fill(SECRET)
        delete(page, "Delete all my answers")
        page.wait_for_timeout(500)
        (first,) = slow
        first.continue_()
        page.unroute("**/entries")
        expect(page.locator("#toast")).to_have_text("All your answers are deleted")
        look_again(page)
        page.wait_for_timeout(500)
        expect(page.locator("#conflicts")).to_be_hidden()
        assert page.evaluate(KEPT).count("fedrl-feedback") == 0
    assert folder.answers() == []
    assert SECRET not in (folder.path / "answers.jsonl").read_text()


def test_a_deletion_that_failed_is_told_until_something_else_is_done(visit, folder):
    folder.ask([rate(name) for name in "ab"])
    folder.answer("a", 1)
    with running(folder) as server:
        page = visit(server)
        part(page, "My answers")
        expect(answer(page, "a")).to_be_visible()
        page.route("**/forget", lambda route: route.abort("connectionrefused"))
        delete(page, "Delete all my answers")
        expect(page.locator("#trouble")).to_contain_text("could not be deleted")
        look_again(page)
        page.wait_for_timeout(500)  # the connection is there again
        expect(page.locator("#trouble")).to_be_visible()
        page.unroute("**/forget")
        delete(page, "Delete all my answers")
        expect(page.locator("#trouble")).to_be_hidden()
        expect(page.locator("#history")).to_have_text("You have no answers here now.")
    assert folder.answers() == []
