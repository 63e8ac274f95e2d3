"""The feedback page in a real browser: no answer is lost, counts twice or goes elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import click, count, press, sent
from support.feedback_pages import compare, live_run, rate, running

from fedrl.cli import call
from fedrl.feedback.queries import Answer
from fedrl.feedback.sources import live
from fedrl.feedback.store import Folder, client_folder
from fedrl.runs.run_dir import RunDir, read_checkpoint

pytestmark = pytest.mark.slow

expect = playwright.expect
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_answers_by_key_and_by_click_arrive(visit, folder):
    folder.ask(
        [rate("a"), compare("b", "one", "two"), rate("c"), compare("d", "x", "y"), rate("e")]
    )
    with running(folder) as server:
        page = visit(server)
        expect(page.get_by_role("heading", level=1)).to_have_text("Is this guess right?")
        expect(page.locator(".item")).to_contain_text("item a")
        expect(page.get_by_role("img", name="3.7 of 5 stars")).to_be_visible()
        press(page, ["ArrowLeft"])
        expect(page.get_by_role("heading", level=1)).to_have_text("Which one is better?")
        expect(page.locator(".item p")).to_have_text(["one", "two"])
        expect(page.locator(".score")).to_have_count(0)  # it would sway the answer
        press(page, "3")
        click(page, "About right")
        click(page, "First is better")
        press(page, ["ArrowDown"])
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you, all answered")
        sent(page)
    values = [-1, 1, 0, -1, 0]
    assert folder.answers() == [Answer(*pair) for pair in zip("abcde", values)]


def test_undo_by_key_and_click_shows_the_question_again(visit, folder):
    folder.ask([rate(name) for name in "abc"])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator(".item")).to_contain_text("item a")
        press(page, "11")
        expect(page.locator("#recent b")).to_have_text(["Too high", "Too high"])
        page.keyboard.press("u")
        expect(page.locator(".item")).to_contain_text("item b")
        page.get_by_role("button", name="Undo").click()
        expect(page.locator(".item")).to_contain_text("item a")
        page.keyboard.press("Backspace")  # nothing is left to undo
        press(page, "3")
        sent(page)
        count(page, "2 left")
    assert folder.answers() == [Answer("a", 1)]


def test_quick_keys_lose_nothing(visit, folder):
    names = [f"q{number}" for number in range(20)]
    folder.ask([rate(name) for name in names])
    with running(folder, limit=100) as server:
        page = visit(server)
        keys = "1232112333"
        press(page, keys)
        count(page, "10 left")
        sent(page)
    given = folder.answers()
    assert [answer.question for answer in given] == names[:10]
    assert [answer.value for answer in given] == [int(key) - 2 for key in keys]


def test_a_reload_loses_nothing_and_the_sitting_goes_on(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(30)])
    with running(folder) as server:
        page = visit(server)
        for round in range(3):
            press(page, "123")
            page.reload()  # at once: what is on its way is sent again by the new page
            count(page, f"{27 - 3 * round} left")
        sent(page)
        expect(page.locator(".item")).to_contain_text("item q9")
        expect(page.locator("#recent li")).to_have_count(6)
    assert [a.question for a in folder.answers()] == [f"q{number}" for number in range(9)]


def test_answers_wait_for_a_server_that_is_away(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(9)])
    with running(folder) as server:
        page = visit(server)
        press(page, "1")
        sent(page)
    press(page, "231")
    expect(page.locator("#trouble")).to_contain_text("Your last 3 entries are kept on this")
    page.keyboard.press("u")
    assert len(folder.answers()) == 1
    with running(folder):
        sent(page)
        expect(page.locator("#trouble")).to_be_hidden()
        count(page, "6 left")
    assert folder.answers() == [Answer("q0", -1), Answer("q1", 0), Answer("q2", 1)]


def test_a_lost_reply_does_not_answer_twice(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(9)])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator("#question")).to_be_visible()
        lost = []

        def lose(route):
            if len(lost) < 2:
                lost.append(route.fetch().status)  # the server hears it, the page no answer
                route.abort("connectionreset")
            else:
                route.continue_()

        page.route("**/entries", lose)
        press(page, "13u2")
        sent(page)
        assert lost == [200, 200]
        count(page, "7 left")
    assert len((folder.path / "answers.jsonl").read_text().splitlines()) == 4
    assert folder.answers() == [Answer("q0", -1), Answer("q1", 0)]


def test_two_tabs_answer_no_question_twice(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(6)])
    with running(folder) as server:
        one = visit(server)
        expect(one.locator(".item")).to_contain_text("item q0")
        two = one.context.new_page()
        two.goto(server.url)
        expect(two.locator(".item")).to_contain_text("item q0")
        press(one, "111")
        sent(one)
        expect(two.locator(".item")).to_contain_text("item q3")  # tabs tell each other
        count(two, "3 left")
        press(two, "3")
        sent(two)
        count(two, "2 left")
    values = {answer.question: answer.value for answer in folder.answers()}
    assert values == {"q0": -1, "q1": -1, "q2": -1, "q3": 1}


def test_two_clients_pages_see_only_their_own_items(visit, tmp_path):
    sources = {client: live.source(tmp_path, client) for client in (3, 4)}
    for client, source in sources.items():
        source.answers([rate("same", f"canary of client {client}"), rate("b")], seed=0)
    three, four = (Folder(client_folder(tmp_path, client)) for client in (3, 4))
    with running(three, 3) as first, running(four, 4) as second:
        pages = {3: visit(first), 4: visit(second)}
        for client, page in pages.items():
            expect(page.locator(".item")).to_contain_text(f"canary of client {client}")
            assert f"canary of client {7 - client}" not in page.content()
        press(pages[3], "1")
        sent(pages[3])
        expect(pages[4].locator(".item")).to_contain_text("canary of client 4")
        stranger = pages[3].context.new_page()
        wrong = second.url.replace(second.key, first.key)
        stranger.goto(wrong)
        expect(stranger.locator("#trouble")).to_contain_text("not complete")
        assert "canary" not in stranger.content()
        stranger.close()
    questions = [rate("same"), rate("b")]
    assert sources[3].answers(questions, seed=1) == [Answer("same", -1)]
    assert sources[4].answers(questions, seed=1) == []


def test_it_waits_calmly_and_shows_what_the_next_round_asks(visit, folder):
    over = []
    with running(folder, over=lambda: bool(over)) as server:
        page = visit(server)
        expect(page.get_by_role("heading", level=1)).to_have_text("Nothing to answer yet")
        expect(page.locator("#quiet p")).to_contain_text("it appears here by itself")
        folder.ask([rate("a")])
        expect(page.locator(".item")).to_contain_text("item a")
        press(page, "2")
        over.append(True)
        expect(page.locator("#quiet p")).to_contain_text("nothing more to do now")


def test_a_question_that_is_looked_at_stays_when_newer_ones_come(visit, folder):
    folder.ask([rate("old"), rate("older")])
    with running(folder) as server:
        page = visit(server)
        expect(page.locator(".item")).to_contain_text("item old")
        folder.ask([rate("new")])
        press(page, "1")
        expect(page.locator(".item")).to_contain_text("item older")  # it was ready
        sent(page)
        press(page, "1")
        expect(page.locator(".item")).to_contain_text("item new")
        sent(page)
    assert [answer.question for answer in folder.answers()] == ["old", "older"]


def test_the_sitting_ends_and_goes_on_when_asked_to(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(9)])
    with running(folder, limit=3) as server:
        page = visit(server)
        expect(page.locator("#question")).to_be_visible()
        press(page, "11111")  # two too many
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
        expect(page.locator("#sum")).to_contain_text("6 questions are still waiting")
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
        assert len(folder.answers()) == 3
        page.keyboard.press("u")
        expect(page.locator(".item")).to_contain_text("item q2")
        press(page, "3")
        expect(page.get_by_role("button", name="Go on with 3 more")).to_be_focused()
        press(page, ["Enter"])
        count(page, "3 left")
        press(page, "2")
        sent(page)
    assert [(a.question, a.value) for a in folder.answers()] == [
        ("q0", -1), ("q1", -1), ("q2", 1), ("q3", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [340, 1100])
def test_odd_texts_do_no_harm_and_nothing_is_wider_than_the_screen(visit, folder, width, scheme):
    long = "x" * 3000
    folder.ask([compare("a", EVIL, long), rate("b", f"{EVIL}\n\u202e{long}", 1e9), rate("c", " ")])
    with running(folder) as server:
        page = visit(server, viewport={"width": width, "height": 700}, color_scheme=scheme)
        expect(page.locator(".item p").first).to_have_text(EVIL)
        for _ in range(3):
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            box = page.get_by_role("button", name="better").or_(page.locator(".choice")).last
            box.scroll_into_view_if_needed()
            expect(box).to_be_in_viewport()
            press(page, "3")
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you, all answered")
        sent(page)


def test_every_control_has_a_name_and_news_is_spoken(visit, folder):
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        page = visit(server)
        guess = "Our guess: 3.7 of 5 stars"
        status = page.get_by_role("status")
        expect(status).to_have_text(f"Is this guess right? item a — {guess}")
        for _ in range(5):  # past the parts of the page and the introduction
            page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Too high")).to_be_focused()
        press(page, ["Enter"])
        expect(status).to_have_text(f"Too high. Is this guess right? item b — {guess}")
        expect(page.get_by_role("button", name="Too high")).to_be_focused()
        bar = page.get_by_role("progressbar", name="Answers in this sitting")
        expect(bar).to_have_attribute("aria-valuenow", "1")
        sent(page)


def test_what_is_answered_here_teaches_a_run_and_is_nowhere_in_it(visit, tmp_path, monkeypatch):
    """A live run, an answer to everything that waits, and the run resumed."""
    pytest.importorskip("numba", reason="FedRLHF's network needs the extra classic")
    from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF

    updates = []
    local = FedRLHF.local
    monkeypatch.setattr(
        FedRLHF, "local", lambda self, job: [r := local(self, job), updates.append(r.update)][0]
    )
    run, folder = live_run(tmp_path, "fedrlhf/movielens_paper", preference_queries=6)
    with running(folder, 1) as server:
        page = visit(server)
        expect(page.locator("#question")).to_be_visible()
        press(page, "313113131331")
        expect(page.get_by_role("heading", level=1)).to_have_text("Thank you, all answered")
        sent(page)
    answered = len(folder.answers())
    assert answered == 12
    assert call(["run", "--resume", str(run), "--rounds", "2"]) == 0
    told = [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]
    assert [line["env/answers"] for line in told if line["client"] == 1] == [0, answered]

    asked = folder.view().queries.values()
    private = {word.encode() for one in asked for word in (one.id, *one.items)}
    assert len(private) > 20
    files = [file.read_bytes() for file in run.rglob("*") if file.is_file()]
    arrays = [array.tobytes() for update in updates for array in update.values()]
    assert len(updates) == 4
    assert not any(word in data for word in private for data in (*files, *arrays))
    for checkpoint in RunDir(run).checkpoints()[:2]:  # after both rounds
        kept = read_checkpoint(checkpoint)[0].clients
        assert set(kept) == {0, 1}
        for mine in kept.values():
            assert np.isnan(mine["answers"]["value"]).all()
            assert "model" not in mine  # it follows from the answers
