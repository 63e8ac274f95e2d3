"""The feedback page in a browser: what changed since before anybody answered, and what a deletion
leaves to show and to delete."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import DESKTOP, PHONE, click, part, press, sent
from support.feedback_pages import rate, running

from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation

pytestmark = pytest.mark.slow

expect = playwright.expect
ALIKE = tuple(Recommendation(f"film {place}", 4.0) for place in range(10))
SMALLEST = {"width": 390, "height": 844}


def ranked(top, first=0):
    return tuple(
        Recommendation(f"film {place}", top - place / 20) for place in range(first, first + 10)
    )


def over(folder, round, without, after, films=0):
    """A round is over."""
    given = folder.given()
    answers = len({name for said in given.values() for name in said})
    effect.write(folder, Effect("films", answers, without, after, round=round, films=films), given)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_headline_is_of_all_that_was_learned_not_of_the_last_round(visit, folder, size):
    folder.ask([rate(name) for name in "abc"])
    over(folder, 1, ALIKE, ALIKE)
    with running(folder) as server:
        page = visit(server, viewport=size)
        press(page, "13")
        sent(page)
        over(folder, 2, ALIKE, ranked(4.5))
        over(folder, 3, ranked(4.5), ranked(4.6))
        page.reload()
        part(page, "What changed")
        told, note = page.locator("#effect-sum"), page.locator("#effect-note")
        expect(told).to_contain_text("You had given 2 answers when the model last learned")
        expect(told).to_contain_text(
            "Before you ever answered all films were alike to the model; now they have"
        )
        expect(told).not_to_contain_text("guesses moved")
        assert note.bounding_box()["y"] < page.locator("#sides").bounding_box()["y"]
        expect(page.get_by_role("region", name="Before you ever answered")).to_contain_text("alike")
        now = page.get_by_role("region", name="Now")
        expect(now.locator(".film")).to_have_count(10)
        expect(now.locator("em")).to_have_count(0)
        expect(page.locator("#last-note")).to_be_hidden()
        page.get_by_text("Only the last time it learned").click()
        expect(page.locator("#last-note")).to_contain_text("That time, our guesses moved, and not")
        expect(page.locator("#last-note")).to_contain_text("holds something of earlier answers")
        expect(page.get_by_role("region", name="Without your answers that time")).to_be_visible()
        expect(page.get_by_role("region", name="With your answers that time")).to_contain_text(
            "(+0.10)"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def sharing(score, films, first=0):
    """Ten of so many films with one score."""
    return tuple(
        Recommendation(f"film {place}", score, sharing=films) for place in range(first, first + 10)
    )


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_films_that_share_the_first_place_are_listed_where_others_are_liked_less(
    visit, folder, size
):
    """Films of the same kinds have one score: of who answers alone the best ten often do."""
    folder.ask([rate(name) for name in "ab"])
    all_alike = sharing(3.75, 400)
    over(folder, 1, all_alike, all_alike, 400)
    with running(folder) as server:
        page = visit(server, viewport=size)
        press(page, "1")
        sent(page)
        told, now = page.locator("#effect-sum"), page.get_by_role("region", name="Now")

        def after(round, without, with_answers):
            over(folder, round, without, with_answers, 400)
            page.reload()
            part(page, "What changed")

        after(2, all_alike, sharing(3.88, 10, first=50))
        expect(told).to_contain_text(
            "Before you ever answered all films were alike to the model; "
            "now these 10 share the first place, 3.88 stars."
        )
        expect(now.locator("ul .film")).to_have_count(10)
        expect(now).to_contain_text("film 50")
        after(3, sharing(3.88, 10, first=50), sharing(3.9, 12, first=53))
        expect(told).to_contain_text("these 10 and 2 more share the first place, 3.90 stars")
        page.get_by_text("Only the last time it learned").click()
        expect(page.locator("#last-note")).to_contain_text("3 recommendations are new")
        last = page.get_by_role("region", name="With your answers that time")
        expect(last.locator("em")).to_have_text(["new"] * 3)  # a tie has no ranks to rise in
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]

        after(4, all_alike, sharing(3.88, 400))  # nothing is liked more than anything else
        expect(told).to_contain_text(
            "all films are alike to the model, as they were before", ignore_case=True
        )
        expect(page.locator(".film")).to_have_count(0)


def test_a_first_place_that_fewer_share_is_told_though_the_same_films_are_listed(visit, folder):
    folder.ask([rate("a")])
    over(folder, 1, sharing(3.7, 2520), sharing(3.7, 2520), 3000)
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        over(folder, 2, sharing(3.7, 2520), sharing(3.8, 39), 3000)
        page.reload()
        part(page, "What changed")
        expect(page.locator("#effect-sum")).to_contain_text(
            "Before you ever answered 2520 films shared the first place; now 39 do."
        )
        page.get_by_text("Only the last time it learned").click()
        told = page.locator("#last-note")
        expect(told).to_contain_text(
            "Without your answers 2520 films shared the first place; with them 39 do."
        )
        expect(told).not_to_contain_text("guesses moved")
        over(folder, 3, sharing(3.7, 2520), ranked(3.8), 3000)
        part(page, "What changed")
        expect(told).to_contain_text(
            "2520 films shared the first place; with them the first 10 have an order."
        )


def test_what_others_made_of_the_model_is_not_called_ones_own_beginning(visit, folder):
    folder.ask([rate("a")])
    over(folder, 1, sharing(4.2, 7), sharing(4.2, 7), 400)
    said = "If people elsewhere had answered by then, it is what their answers had made of"
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        over(folder, 2, sharing(4.2, 7), ranked(4.5), 400)
        page.reload()
        part(page, "What changed")
        first = page.get_by_role("region", name="Before you ever answered")
        expect(first).to_contain_text(said)
        expect(page.get_by_text(said)).to_have_count(1)
        expect(page.locator("#where")).to_contain_text(
            "all who take part and whoever runs it can see how you judged films"
        )


def test_what_moved_since_the_beginning_is_marked_in_the_list_of_now(visit, folder):
    folder.ask([rate("a")])
    over(folder, 1, ranked(4.0), ranked(4.0))
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
        over(folder, 2, ranked(4.0, 1), ranked(4.2, 2))
        page.reload()
        part(page, "What changed")
        expect(page.locator("#effect-sum")).to_contain_text(
            "Compared with before you ever answered, 2 recommendations are new among the first 10."
        )
        expect(page.get_by_role("region", name="Now").locator("em.new")).to_have_count(2)


def test_after_a_deletion_it_is_not_told_that_nothing_was_learned_yet(visit, folder):
    folder.ask([rate(name)._replace(guessed=False) for name in "abcd"])
    over(folder, 1, ALIKE, ALIKE)
    with running(folder) as server:
        page = visit(server)
        press(page, "13")
        sent(page)
        part(page, "What changed")
        told = page.locator("#effect-sum")
        expect(told).to_contain_text("Your answers are kept. What they change is shown here once")
        over(folder, 2, ALIKE, ranked(4.5))
        part(page, "What changed")
        expect(page.locator("#now")).to_be_visible()
        part(page, "My answers")
        page.get_by_role("button", name="Delete your answer: item a").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        sent(page)
        part(page, "What changed")
        expect(told).to_contain_text("You have deleted an answer, so what it had changed is no")
        expect(told).to_contain_text("comes anew when the model has learned again")
        expect(page.locator("#sides")).to_be_empty()
        expect(page.locator("#last")).to_be_hidden()
        part(page, "Questions")  # the model has learned all the same
        expect(page.locator("#items")).to_contain_text("From before the model had learned from you")
        over(folder, 3, ALIKE, ranked(4.4))
        part(page, "What changed")
        expect(page.get_by_role("region", name="Before you ever answered")).to_be_visible()


def test_what_can_be_deleted_and_downloaded_is_there(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    delete = "Delete all my answers"
    with running(folder) as server:
        page = visit(server)
        buttons = [page.get_by_role("button", name=name) for name in (delete, "CSV", "JSON")]

        def active(*which):
            for button, one in zip(buttons, which, strict=True):
                expect(button).to_be_enabled(enabled=one)

        part(page, "My answers")
        expect(page.locator("#history")).to_contain_text("You have no answers here now")
        active(False, False, False)
        part(page, "Questions")
        press(page, "1")
        sent(page)
        part(page, "My answers")
        active(True, True, True)
        part(page, "Questions")
        page.get_by_role("button", name="Undo").click()
        sent(page)
        part(page, "My answers")
        expect(page.locator("#history")).to_contain_text("You have no answers here now")
        active(True, False, False)  # what was taken back is still on the disk
        assert '"value": -1' in (folder.path / "answers.jsonl").read_text()
        buttons[0].click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator("#toast")).to_have_text("All your answers are deleted")
        active(False, False, False)
        assert "value" not in (folder.path / "answers.jsonl").read_text()
        page.reload()
        part(page, "My answers")
        active(False, False, False)


@pytest.mark.parametrize("guessed", [False, True], ids=["start", "guess"])
def test_who_reads_answers_is_in_sight_before_the_first_one(visit, folder, guessed):
    film = "The Lord of the Rings: The Fellowship of the Ring (2001): Adventure, Fantasy"
    folder.ask([rate(name, film)._replace(guessed=guessed) for name in "ab"])
    with running(folder) as server:
        page = visit(server, viewport=SMALLEST)
        told, bar = page.locator("#who-reads"), page.locator(".choices")
        expect(told).to_contain_text("Whoever gave you this link can read your answers")
        expect(told).to_be_in_viewport(ratio=1)
        bottom = [one.bounding_box() for one in (told, page.locator(".item"))]
        top = bar.bounding_box()["y"]
        assert all(box["y"] + box["height"] <= top for box in bottom)
        click(page, "Too low" if guessed else "More stars")
        sent(page)
        page.get_by_text("What this is about").click()
        expect(told).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_half_an_address_is_a_page(new_person, folder, size):  # noqa: F811
    with running(folder) as server:
        page = new_person(server.site, [server.site], "404", viewport=size)
        expect(page.get_by_role("heading", level=1)).to_have_text(
            "There is nothing at this address"
        )
        expect(page.locator("p")).to_contain_text("Open the whole link that you were given")
        assert page.evaluate("getComputedStyle(document.body).marginTop") == "0px"  # its style
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
