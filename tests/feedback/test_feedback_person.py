"""A person's session in a real browser: answers changed, noted, exported and deleted, two devices,
and what the answers did to the client's recommendations."""

from __future__ import annotations

import json
import re

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import DESKTOP, PHONE, click, count, part, press, sent
from support.feedback_pages import compare, live_run, rate, running

from fedrl.cli import call
from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation
from fedrl.feedback.queries import Answer, Query

pytestmark = pytest.mark.slow

expect = playwright.expect
FILM = (Recommendation("A film", 4.5),)


def disk(folder):
    return "".join(file.read_text() for file in folder.path.rglob("*.jsonl"))


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_an_answer_is_changed_noted_and_deleted(visit, folder, size):
    folder.ask([rate("a"), rate("b"), compare("c", "one", "two"), rate("d")])
    with running(folder) as server:
        page = visit(server, viewport=size)
        press(page, "1")
        page.get_by_text("Add a note").click()
        page.get_by_label("A note to your answer").fill("seen in 1999, 3 times")  # no keys' answers
        click(page, "Too low")
        click(page, "First is better")
        sent(page)
        part(page, "My answers")
        expect(page.get_by_role("combobox")).to_have_count(3)
        expect(page.get_by_label("Your note: item b")).to_have_value("seen in 1999, 3 times")
        note = page.get_by_label("Your note: item a")
        if size is PHONE:  # an empty one is folded
            expect(note).to_be_hidden()
            page.get_by_label("Add a note: item a").click()
            expect(note).to_be_focused()
        for words in ("many words that do not fit into a line " * 4, "on"):  # none is cut off
            note.fill(words)
            assert note.evaluate("box => box.scrollHeight <= box.clientHeight")
        height = note.bounding_box()["height"]
        assert page.get_by_label("Your note: item b").bounding_box()["height"] == height
        page.get_by_label("Your answer: item a", exact=True).select_option("About right")
        page.get_by_label("Your note: item a").fill("on second thought")
        page.get_by_label("Your note: item a").blur()
        sent(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        page.get_by_label("Delete your answer: item b").click()
        page.get_by_role("button", name="Keep").click()
        expect(page.get_by_role("combobox")).to_have_count(3)
        page.get_by_label("Delete your answer: item b").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("combobox")).to_have_count(2)
        sent(page)
        part(page, "Questions")
        expect(page.locator(".item")).to_contain_text("item d")  # b is not asked again
        count(page, "1 left")
    assert folder.answers() == [Answer("a", 0), Answer("c", -1)]
    assert folder.view().log.standing("a").comment == "on second thought"
    assert "1999" not in disk(folder)


def test_answers_are_exported_and_all_deleted(visit, folder):
    folder.ask([rate("a", "=1+1"), compare("b", "one", "two"), rate("c")])
    with running(folder) as server:
        page = visit(server, accept_downloads=True)
        press(page, "31")
        sent(page)
        part(page, "My answers")
        with page.expect_download() as table:
            page.get_by_role("button", name="Download as a table").click()
        rows = table.value.path().read_text().splitlines()
        assert table.value.suggested_filename == "my-answers.csv"
        assert rows[1].endswith(",rate,'=1+1,,3.7,too low,1,")  # no formula
        with page.expect_download() as whole:
            page.get_by_role("button", name="Download all").click()
        told = json.loads(whole.value.path().read_text())["answers"]
        assert [(one["question"], one["value"]) for one in told] == [("a", 1), ("b", -1)]
        page.get_by_role("button", name="Delete all my answers").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator("#history")).to_contain_text("You have no answers here now")
        part(page, "Questions")
        expect(page.locator(".item")).to_contain_text("item c")
    assert folder.answers() == []
    assert "value" not in disk(folder)


def test_two_devices_disagree_and_the_person_decides(visit, folder):
    """A stale page loses nothing: what was said there waits for a decision, over a reload too."""
    folder.ask([rate(name) for name in "abcd"])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator(".item")).to_contain_text("item a")
        folder.answer("a", -1)  # on the phone
        press(page, "3")
        told = page.get_by_role("alert", name="Answered in two places")
        expect(told).to_contain_text("you have said “Too high”. Here you said “Too low”")
        assert folder.answers() == [Answer("a", -1)]
        page.reload()
        told.get_by_role("button", name="Use “Too low”").click()
        expect(told).to_be_hidden()
        sent(page)
        assert folder.answers() == [Answer("a", 1)]

        expect(page.locator(".item")).to_contain_text("item b")
        folder.answer("b", 0)
        press(page, "1")
        told.get_by_role("button", name="Keep “About right”").click()
        sent(page)
        assert folder.answers() == [Answer("a", 1), Answer("b", 0)]

        part(page, "My answers")
        expect(page.get_by_role("combobox")).to_have_count(2)
        folder.change("a", 0.0)
        page.get_by_label("Your answer: item a", exact=True).select_option("Cannot say")
        expect(told).to_contain_text("you have said “About right”. Here you said “Cannot say”")
        told.get_by_role("button", name="Use “Cannot say”").click()
        sent(page)
    assert folder.answers() == [Answer("b", 0)]


def test_the_same_answer_twice_is_no_conflict_and_a_question_that_is_gone_is_told(visit, folder):
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator(".item")).to_contain_text("item a")
        folder.answer("a", 1)
        press(page, "3")
        expect(page.locator(".item")).to_contain_text("item b")
        sent(page)
        expect(page.locator("#conflicts")).to_be_hidden()
        (folder.path / "questions.jsonl").write_text(
            "".join((folder.path / "questions.jsonl").read_text().splitlines(True)[:1])
        )
        press(page, "1")
        expect(page.locator("#conflicts")).to_contain_text("no longer asked")
        page.get_by_role("button", name="Close").click()
        sent(page)
    assert folder.answers() == [Answer("a", 1)]


def test_a_page_of_another_version_offers_to_load_again(visit, folder):
    folder.ask([rate("a")])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator(".item")).to_contain_text("item a")
        expect(page.locator("#renewed")).to_be_hidden()
        server.page = "another"
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#renewed")).to_be_visible()
        page.get_by_role("button", name="Load it again").click()
        expect(page.locator("#renewed")).to_be_hidden()


def test_what_was_given_is_told_apart_from_what_the_model_wrote(visit, folder):
    prompt, items = "Once upon a time", ("Once upon a time all was well.", "Once upon a time. No.")
    folder.ask([Query("c", "compare", ("1", "2"), items, (0.5, 0.5), prompt)])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator("#given p")).to_have_text(prompt)
        expect(page.locator(".item p")).to_have_text(["… all was well.", "… . No."])
        expect(page.locator("#why")).to_contain_text("A computer wrote both texts")
        expect(page.get_by_role("status")).to_have_text(
            f"Which one is better? {prompt} — First: … all was well. — Second: … . No."
        )


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_reader_of_the_tree_finds_everything_and_the_keyboard_reaches_it(visit, folder, size):
    folder.ask([rate("a", score=2.5), rate("b")])
    with running(folder) as server:
        page = visit(server, viewport=size)
        expect(page.locator(".item")).to_contain_text("item a")
        expect(page.locator("body")).to_match_aria_snapshot("""
          - banner:
            - text: Your feedback client 3 2 left
            - progressbar "Answers in this sitting"
            - navigation "Parts of this page":
              - button "Questions"
              - button "My answers"
              - button "What changed"
          - main:
            - group:
              - text: What this is about
              - paragraph: /guess of how many stars you would give.*learn/
            - heading "Is this guess right?" [level=1]
            - article:
              - paragraph: item a
              - img "2.5 of 5 stars"
            - group "Is this guess right?":
              - button "Too high"
              - button "About right"
              - button "Too low"
              - button "Not seen / cannot say"
              - button "Skip, ask me later"
            - group: Add a note
        """)
        page.keyboard.press("Tab")
        reached = []
        for _ in range(10):
            reached.append(page.evaluate("document.activeElement.textContent.trim()"))
            page.keyboard.press("Tab")
        assert [word.lstrip("←↓→0s") for word in reached] == [
            "Questions", "My answers", "What changed", "What this is about", "Too high",
            "About right", "Too low", "Not seen / cannot say", "Skip, ask me later", "Add a note",
        ]  # fmt: skip
        press(page, "1")
        sent(page)
        part(page, "My answers")
        expect(page.get_by_role("combobox", name="Your answer: item a")).to_be_visible()
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, select, textarea')].filter((one) => "
            "!one.ariaLabel && !one.textContent.trim() && !one.labels?.length).length"
        )
        assert unnamed == 0


def test_several_people_have_links_of_their_own_and_an_overview_tells_how_they_agree(visit, folder):
    folder.ask([rate(name) for name in "abcd"])
    with running(folder, people=["anna", "ben"]) as server:
        pages = {name: visit(server, link=server.links[name]) for name in server.links}
        for page in pages.values():
            expect(page.locator(".item")).to_contain_text("item a")
        press(pages["anna"], "112")
        press(pages["ben"], "13")
        pages["ben"].get_by_text("Add a note").click()
        pages["ben"].get_by_label("A note to your answer").fill("odd film")
        click(pages["ben"], "About right")
        for page in pages.values():
            sent(page)
        expect(pages["anna"].locator("#who")).to_have_text("anna")
        expect(pages["anna"].locator("#why")).to_contain_text("together with 1 other person")
        assert "ben" not in pages["anna"].content()
        effect.write(folder, Effect("films", 3, FILM, FILM), folder.given())
        for name, own in {"anna": 3, "ben": 3}.items():
            part(pages[name], "What changed")
            expect(pages[name].locator("#effect-sum")).to_contain_text(
                f"Together you had answered 3 questions, of which you yourself answered {own}"
            )
            expect(pages[name].locator("#effect-sum")).not_to_contain_text("now")
            expect(pages[name].get_by_role("region", name="With the answers of all of you")
                   ).to_be_visible()  # fmt: skip
        board = visit(server, viewport=PHONE)
        expect(board.locator("#people tbody tr")).to_contain_text(["anna", "ben"])
        expect(board.locator("#agreement")).to_contain_text(
            "said the same in 67% of the comparisons"
        )
        expect(board.locator("#disputed")).to_contain_text("anna: too high; ben: too low")
        expect(board.locator("#notes")).to_contain_text("odd film")
        assert board.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert folder.answers() == [Answer("a", -1), Answer("b", 0), Answer("c", 0)]


@pytest.mark.parametrize("recipe", ["fedrlhf/movielens", "fedrlhf/movielens_paper"])
def test_what_answers_change_is_on_the_page_and_goes_with_them(visit, tmp_path, recipe):
    """A live run, answers, a round, one answer changed, a round, all deleted, a round."""
    run, folder = live_run(tmp_path, recipe)
    seen = {}

    def films(page):
        page.reload()
        part(page, "What changed")
        expect(page.get_by_role("region", name="Before you ever answered")).to_be_visible()
        page.get_by_text("Only the last time it learned").click()
        expect(page.get_by_role("region", name="With your answers that time")).to_be_visible()
        return [
            page.get_by_role("region", name=name).locator(".film").all_text_contents()
            + page.get_by_role("region", name=name).get_by_role("img").evaluate_all(
                "all => all.map((one) => one.ariaLabel)"
            )
            for name in ("Without your answers that time", "With your answers that time")
        ]  # fmt: skip

    def more(rounds):
        assert call(["run", "--resume", str(run), "--rounds", str(rounds)]) == 0

    with running(folder, 1) as server:
        page = visit(server)
        press(page, "333333")
        sent(page)
        more(2)
        seen["answered"] = films(page)
        expect(page.locator("#effect-sum")).to_contain_text("You had given 6 answers when")
        expect(page.locator("#last-note")).to_contain_text("something of earlier answers")
        expect(page.locator(".side .score").last).to_have_text(re.compile(r"^[0-5]\.\d\d"))
        part(page, "My answers")
        for place in range(6):
            page.locator("#history select").nth(place).select_option(value="-1")
        sent(page)
        more(3)
        seen["changed"] = films(page)
        part(page, "My answers")
        page.get_by_role("button", name="Delete all my answers").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator("#history")).to_contain_text("You have no answers here now")
        part(page, "What changed")
        expect(page.locator("#effect-sum")).to_contain_text("You have deleted your answers")
        assert effect.read(folder) is None
        more(4)
        page.reload()
        part(page, "What changed")
        expect(page.locator("#effect-sum")).to_contain_text("You have deleted your answers")
    for moment in ("answered", "changed"):
        without, with_answers = seen[moment]
        assert without != with_answers
    assert seen["answered"][1] != seen["changed"][1]
    found = effect.read(folder)
    assert found.answers == 0
    assert found.without == found.with_answers
    lines = [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]
    assert [line["env/answers"] for line in lines if line["client"] == 1][:2] == [0, 6]
