"""The feedback page in a browser: guesses of today, and what a card says while it is looked at."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import look_again, part, press, sent
from support.feedback_pages import rate, running

from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation

pytestmark = pytest.mark.slow

expect = playwright.expect
FILM = (Recommendation("A film", 4.5),)
SINCE = "A guess from before your last answers"
DELETED = "A guess from before an answer was deleted"
REMAINS = "May still follow from what was learned from you before"


def over(folder, round):
    """A round is over, that has learned from what stands."""
    given = folder.given()
    effect.write(folder, Effect("films", len(given), FILM, FILM, round=round), given)


def next_round(folder, names):
    """The next one asks about the same films with scores of its own."""
    folder.drop_stale()
    folder.ask([anew(name) for name in names])


def anew(name):
    return rate(f"{name}-anew", f"item {name}", 2.2)._replace(keys=(f"key-{name}",))


def test_a_guess_that_is_looked_at_stays_while_it_is_made_anew_and_its_answer_counts(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        card = page.locator("#items")
        expect(card).to_have_text("item bOur guess ★★★★★★★★★★3.7")
        over(folder, 1)
        look_again(page)
        expect(card).to_contain_text(SINCE)
        expect(page.get_by_role("status").last).to_contain_text(
            f"item b — Our guess: 3.7 of 5 stars — {SINCE}"
        )
        next_round(folder, "bc")
        look_again(page)
        page.wait_for_timeout(400)
        expect(card).to_contain_text("item bOur guess ★★★★★★★★★★3.7")
        expect(page.locator("#count")).to_have_text("2 left")
        press(page, "3")
        sent(page)
        expect(card).to_have_text("item cOur guess ★★★★★★★★★★2.2")
        expect(page.locator("#count")).to_have_text("1 left")
        expect(page.locator("#conflicts")).to_be_hidden()
    assert [(one.question, one.value) for one in folder.answers()] == [("a", -1), ("b", 1)]


def test_answers_without_a_connection_count_though_their_guesses_were_made_anew(visit, folder):
    folder.ask([rate(name) for name in "abcd"])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
    press(page, "12")
    over(folder, 1)
    next_round(folder, "bcd")
    with running(folder):
        sent(page)
        expect(page.locator("#items")).to_contain_text("item d")
        expect(page.locator("#conflicts")).to_be_hidden()
    assert [one.question for one in folder.answers()] == ["a", "b", "c"]
    assert [one.id for one in folder.pending()] == ["d-anew"]


def test_a_question_that_is_looked_at_stays_though_the_first_guesses_come_in_great_number(
    visit, folder
):
    folder.ask([rate(name)._replace(guessed=False) for name in "ab"])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator("#items")).to_contain_text("item a")
        folder.ask([rate(f"new {number}") for number in range(60)])
        look_again(page)
        expect(page.locator("#count")).to_have_text("50 left")
        page.wait_for_timeout(300)
        expect(page.locator("#items")).to_contain_text("item a")
        press(page, "1")
        sent(page)
        expect(page.locator("#items")).to_contain_text("item new 0")


@pytest.mark.parametrize("way", ["forget", "forget_all"])
def test_a_card_on_the_screen_tells_of_a_deletion_elsewhere(visit, folder, way):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        expect(page.locator("#items")).to_contain_text("item b")
        folder.forget("a") if way == "forget" else folder.forget_all()
        look_again(page)
        expect(page.locator("#items")).to_contain_text(DELETED)
        press(page, "1")  # once it was there for a while
        expect(page.locator("#items")).to_contain_text("item c")
        sent(page)


def test_after_all_was_deleted_guesses_say_what_remains_as_long_as_that_is_so(visit, folder):
    folder.ask([rate(name) for name in "abcd"])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        over(folder, 1)
        folder.forget_all()
        next_round(folder, "bcd")
        over(folder, 2)
        page.reload()
        expect(page.locator("#items")).to_contain_text("item b")
        expect(page.locator("#items")).to_contain_text(REMAINS)
        press(page, "1")
        sent(page)
        expect(page.locator("#items")).to_contain_text("item c")
        expect(page.locator("#items")).not_to_contain_text(REMAINS)  # something stands again


def test_what_was_deleted_before_it_was_learned_from_leaves_nothing_to_say(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        folder.forget_all()
        next_round(folder, "bc")
        page.reload()
        expect(page.locator("#items")).to_contain_text("item b")
        expect(page.locator("#items .early")).to_have_count(0)


def test_skips_do_not_fill_lately(visit, folder):
    folder.ask([rate(name) for name in "abcdef"])
    with running(folder) as server:
        page = visit(server)
        press(page, "1sss")
        expect(page.locator("#recent li")).to_have_text(["Skippeditem d", "Too highitem a"])
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#items")).to_contain_text("item d")
        press(page, "3")
        expect(page.locator("#recent b")).to_have_text(["Too low", "Too high"])
        sent(page)


@pytest.mark.parametrize("name", ["Questions", "My answers", "What changed"])
def test_a_text_of_twice_the_size_fits_a_phone(visit, folder, name):
    folder.ask([rate(name) for name in "ab"])
    with running(folder) as server:
        page = visit(server, viewport={"width": 390, "height": 844})
        press(page, "1")
        sent(page)
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        part(page, name)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for tab in page.locator(".tab").all():
            box = tab.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
