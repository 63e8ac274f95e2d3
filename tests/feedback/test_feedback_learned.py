"""The feedback page in a browser: no guess before there is one, and news of what was learned."""

from __future__ import annotations

import re

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import DESKTOP, PHONE, click, part, press, sent
from support.feedback_pages import live_run, rate, running

from fedrl.cli import call
from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation

pytestmark = pytest.mark.slow

expect = playwright.expect
FILM = (Recommendation("A film", 4.5),)


def unguessed(name):
    return rate(name, score=4.0)._replace(guessed=False)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_where_the_model_knows_nothing_there_is_no_guess(visit, folder, size):
    folder.ask([unguessed("a"), rate("b")])
    with running(folder) as server:
        page = visit(server, viewport=size)
        expect(page.get_by_role("heading", level=1)).to_have_text(
            "Would you give fewer than 4 stars, about 4, or more?"
        )
        expect(page.locator("#why")).to_contain_text("nothing was known of your taste")
        expect(page.locator("#items")).to_have_text("item a")  # 4 stars are not the film's
        expect(page.get_by_role("status").last).to_contain_text("about 4, or more? item a")
        click(page, "Fewer stars")
        expect(page.get_by_role("heading", level=1)).to_have_text("Is this guess right?")
        expect(page.locator("#recent")).to_contain_text("Fewer stars")
        expect(page.locator("#items")).to_have_text("item bOur guess ★★★★★★★★★★3.7")
        sent(page)
        part(page, "My answers")
        expect(page.locator("#history")).to_contain_text("You were asked about ★★★★★★★★★★4.0")
        page.get_by_label("Your answer: item a", exact=True).select_option("More stars")
        sent(page)
    assert [answer.value for answer in folder.answers()] == [1]


def test_a_person_is_told_once_what_a_round_has_learned(visit, folder):
    folder.ask([rate(name) for name in "abcd"])
    with running(folder) as server:
        page = visit(server)
        news = page.locator("#learned")
        press(page, "13")
        sent(page)
        expect(news).to_be_hidden()
        effect.write(folder, Effect("films", 2, FILM, FILM, round=12), folder.given())
        press(page, "1")  # it looks by itself, but not at once
        expect(news).to_contain_text("The model has learned from 2 of your answers.")
        sent(page)
        page.reload()
        expect(news).to_be_visible()
        page.get_by_role("button", name="See what changed").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("What your answers changed")
        expect(page.locator("#effect-sum")).to_contain_text("You had given 2 answers when")
        expect(news).to_be_hidden()
        page.reload()
        expect(page.locator("#question")).to_be_visible()
        expect(news).to_be_hidden()
        effect.write(folder, Effect("films", 3, FILM, FILM, round=13), folder.given())
        page.reload()
        expect(news).to_contain_text("The model has learned from 3 of your answers.")


def test_questions_from_before_the_model_learned_say_so(visit, folder):
    folder.ask([unguessed(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator("#why")).to_contain_text("nothing was known of your taste")
        press(page, "1")
        sent(page)
        effect.write(folder, Effect("films", 1, FILM, FILM, round=21), folder.given())
        page.reload()
        expect(page.locator("#learned")).to_contain_text("has learned from 1 of your")
        expect(page.locator("#why")).to_contain_text("from before the model had learned from you")
        expect(page.locator("#why")).not_to_contain_text("nothing was known")
        expect(page.locator("#items .stars")).to_have_count(0)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_what_is_from_before_says_so_on_its_card(visit, folder, size):
    """What it is about is folded away by then."""
    before = "From before the model had learned from you"
    folder.ask([*(unguessed(name) for name in "abcd"), rate("e")])
    with running(folder) as server:
        page = visit(server, viewport=size)
        expect(page.locator("#items")).not_to_contain_text(before)
        press(page, "1")
        sent(page)
        effect.write(folder, Effect("films", 1, FILM, FILM, round=21), folder.given())
        page.reload()
        press(page, "1")
        expect(page.locator("#items")).to_contain_text("item c")
        expect(page.locator("#why")).to_be_hidden()
        expect(page.locator("#items").get_by_text(before)).to_be_visible()
        expect(page.get_by_role("status").last).to_contain_text(f"item c — {before}")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        press(page, "11")
        expect(page.locator("#items")).to_contain_text("item e")
        expect(page.locator("#items")).not_to_contain_text(before)  # a guess
        sent(page)


def test_a_guess_from_before_a_deletion_says_so_on_its_card(visit, folder):
    before = "A guess from before an answer was deleted"
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        expect(page.locator("#items")).to_contain_text("item b")
        expect(page.locator("#items")).not_to_contain_text(before)
        sent(page)
        folder.forget_all()
        folder.ask([rate("d"), rate("b")])  # a round later
        page.reload()
        expect(page.locator("#items")).to_contain_text("item d")
        expect(page.locator("#items")).not_to_contain_text(before)
        press(page, "1")
        expect(page.locator("#items")).to_contain_text("item b")
        expect(page.locator("#items")).to_contain_text(before)
        sent(page)


def test_an_introduction_is_read_once(visit, folder):
    folder.ask([unguessed("a"), unguessed("b"), rate("c"), unguessed("d")])
    with running(folder) as server:
        page = visit(server, viewport=PHONE)
        intro = page.locator("#why")
        expect(intro).to_be_visible()
        page.reload()
        expect(intro).to_be_visible()
        press(page, "1")
        expect(page.locator("#items")).to_contain_text("item b")
        expect(intro).to_be_hidden()
        page.get_by_text("What this is about").click()
        expect(intro).to_be_visible()
        click(page, "Fewer stars")
        expect(page.locator("#items")).to_contain_text("item c")
        expect(intro).to_be_visible()  # another kind of question
        press(page, "1")
        expect(page.locator("#items")).to_contain_text("item d")
        expect(intro).to_be_hidden()
        sent(page)
        page.reload()
        expect(page.locator("#items")).to_contain_text("item d")
        expect(intro).to_be_hidden()


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_films_that_are_all_alike_have_no_ranks(visit, folder, size):
    """The order of a catalogue is no recommendation, and what is not in it is not new."""
    folder.ask([rate("a")])
    alike = tuple(Recommendation(f"film {place}", 3.75) for place in range(10))
    ranked = tuple(Recommendation(f"film {place}", 4.5 - place / 10) for place in range(5, 15))
    with running(folder) as server:
        page = visit(server, viewport=size)
        press(page, "1")
        sent(page)
        for before, after, told in [
            (alike, ranked, "without your answers all films would have been alike to the model"),
            (ranked, alike, "with your answers all films were alike to the model."),
            (alike, alike, "with your answers and without, all films were alike"),
        ]:
            effect.write(folder, Effect("films", 1, before, after, round=2), folder.given())
            page.reload()
            part(page, "What changed")
            expect(page.locator("#effect-sum")).to_contain_text(told)
            expect(page.locator("#effect-sum")).not_to_contain_text("new")
            for name, side in (("#without-answers", before), ("#with-answers", after)):
                films = page.locator(".side").filter(has=page.locator(name)).locator(".film")
                expect(films).to_have_count(0 if side is alike else 10)
            expect(page.locator(".side em")).to_have_count(0)


def test_a_damaged_effect_keeps_nobody_from_answering(visit, folder):
    folder.ask([rate("a"), rate("b")])
    (folder.path / "effect.json").write_text("{")
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        expect(page.locator("#items")).to_contain_text("item b")
        sent(page)


def test_guesses_come_once_a_run_has_learned(visit, tmp_path):
    """Nobody is there for many rounds; then a person answers, and the model can guess."""
    run, folder = live_run(tmp_path, "fedrlhf/movielens", rating_queries=100)
    resume = ["run", "--resume", str(run), "--rounds"]
    assert call([*resume, "5"]) == 0
    assert not any(query.guessed for query in folder.pending())
    assert len(folder.pending()) == 20  # others are left for guesses
    with running(folder, 1) as server:
        page = visit(server)
        press(page, "13" * 10)
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you, all answered")
        sent(page)
        assert call([*resume, "8"]) == 0
        page.reload()
        expect(page.locator("#learned")).to_contain_text("has learned from 20 of your answers.")
        expect(page.get_by_role("heading", level=1)).to_have_text("Is this guess right?")
        stars = page.locator("#items").get_by_role("img")
        expect(stars).to_have_attribute("aria-label", re.compile(r"[\d.]+ of 5 stars"))
    guesses = {query.scores[0] for query in folder.pending()}
    assert len(guesses) > 1
    assert all(query.guessed for query in folder.pending())
