"""The feedback page in a real browser: no answer is lost, counts twice or goes elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from browsing import browser, new_person, playwright  # noqa: F401
from feedback_pages import compare, rate, running

from fedrl.cli import call
from fedrl.experiment.rundir import RunDir, read_checkpoint
from fedrl.feedback import live
from fedrl.feedback.records import Answer
from fedrl.feedback.store import Folder, Progress, client_folder

pytestmark = pytest.mark.slow

expect = playwright.expect
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def folder(tmp_path):
    return Folder(client_folder(tmp_path / "private", 3))


@pytest.fixture
def visit(new_person):  # noqa: F811
    """Opens a server's page; it may talk to the servers that were visited and to nobody else."""
    allowed = set()

    def open_(server, **options):
        allowed.add(f"http://127.0.0.1:{server.server_port}{server.root}")
        return new_person(server.url, allowed, "ERR_CON", **options)

    return open_


def sent(page):
    """Wait until nothing is left to send (the page's own rules forbid playwright's way to wait)."""
    for _ in range(1000):
        if page.evaluate("localStorage.length") == 0:
            return
        page.wait_for_timeout(20)
    raise AssertionError("the page did not get rid of its answers")


def press(page, keys):
    """Each key once what is on the screen has been there long enough to be seen."""
    for key in keys:
        expect(page.locator("body.seen")).to_be_attached()
        page.keyboard.press(key)


def click(page, name):
    expect(page.locator("body.seen")).to_be_attached()
    page.get_by_role("button", name=name).click()


def count(page, text):
    expect(page.locator("#count")).to_have_text(text)


def test_answers_by_key_and_by_click_arrive(visit, folder):
    folder.ask(
        [rate("a"), compare("b", "one", "two"), rate("c"), compare("d", "x", "y"), rate("e")]
    )
    with running(folder) as server:
        page = visit(server)
        expect(page.get_by_role("heading", level=1)).to_have_text("Is the model’s score right?")
        expect(page.locator(".item")).to_contain_text("item a")
        expect(page.locator(".score")).to_have_text("The model says 3.7")
        press(page, ["ArrowLeft"])
        expect(page.get_by_role("heading", level=1)).to_have_text("Which one is better?")
        expect(page.locator(".item p")).to_have_text(["one", "two"])
        expect(page.locator(".score")).to_have_count(0)  # it would sway the answer
        press(page, "3")
        click(page, "About right")
        click(page, "First is better")
        press(page, ["ArrowDown"])
        expect(page.get_by_role("heading", level=1)).to_have_text("All answered")
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
        count(page, "1 of 50")
    assert folder.answers() == [Answer("a", 1)]


def test_quick_keys_lose_nothing(visit, folder):
    names = [f"q{number}" for number in range(20)]
    folder.ask([rate(name) for name in names])
    with running(folder, limit=100) as server:
        page = visit(server)
        keys = "1232112333"
        press(page, keys)
        count(page, "10 of 100")
        sent(page)
    given = folder.answers()
    assert [answer.question for answer in given] == names[:10]
    assert [answer.value for answer in given] == [int(key) - 2 for key in keys]


# Nobody answers what they have not seen -----------------------------------------------------------


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
        count(page, "1 of 50")
    assert folder.answers() == [Answer("a", 1)]


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
        count(page, "3 of 50")
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
        count(page, "3 of 50")
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
        count(page, "0 of 50")
        expect(page.locator("#recent b")).to_have_text(["Cannot say"])
        expect(page.get_by_role("status")).to_contain_text("Cannot say. Is the model’s score")
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
        expect(page.get_by_role("status")).to_contain_text("Skipped. Is the model’s score right?")
        sent(page)
        page.reload()
        expect(page.locator(".item")).to_contain_text("item b")
        press(page, "s")
        expect(page.locator(".item")).to_contain_text("item c")
        press(page, "u")  # the skip is taken back
        expect(page.locator(".item")).to_contain_text("item b")
        count(page, "0 of 50")
        press(page, "11")
        expect(page.locator(".item")).to_contain_text("item a")
        expect(page.get_by_role("button", name="Skip")).to_be_disabled()  # nothing else waits
        press(page, "s3")
        expect(page.get_by_role("heading", level=1)).to_have_text("All answered")
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
        for name in ("Too high", "About right", "Too low", "Cannot say", "Skip"):
            page.keyboard.press("Tab")
            expect(page.get_by_role("button", name=name)).to_be_focused()
        for name in ("Too low", "Cannot say", "Skip"):
            expect(page.locator("body.seen")).to_be_attached()
            button = page.get_by_role("button", name=name)
            expect(button).to_be_in_viewport(ratio=1)
            assert button.bounding_box()["height"] >= 40  # a finger's
            button.tap()
        expect(page.locator(".item")).to_contain_text("item d")
        expect(page.locator(".item")).to_be_in_viewport(ratio=1)
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Undo")).to_be_focused()
        sent(page)
    assert folder.answers() == [Answer("a", 1)]
    assert [one.id for one in folder.pending()] == ["d", "c"]


# Nothing is lost or counts twice ------------------------------------------------------------------


def test_a_reload_loses_nothing_and_the_sitting_goes_on(visit, folder):
    folder.ask([rate(f"q{number}") for number in range(30)])
    with running(folder) as server:
        page = visit(server)
        for round in range(3):
            press(page, "123")
            page.reload()  # at once: what is on its way is sent again by the new page
            count(page, f"{3 * round + 3} of 50")
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
    expect(page.locator("#trouble")).to_contain_text("Your last 3 entries are kept here")
    page.keyboard.press("u")
    assert len(folder.answers()) == 1
    with running(folder):
        sent(page)
        expect(page.locator("#trouble")).to_be_hidden()
        count(page, "3 of 50")
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
        count(page, "2 of 50")
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
        press(two, "3")  # to q0, which is answered
        expect(two.locator(".item")).to_contain_text("item q3")
        count(two, "3 of 50")
        press(two, "3")
        sent(two)
        count(two, "4 of 50")
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
        expect(stranger.locator("#trouble")).to_contain_text("lacks its key")
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
        expect(page.locator("#quiet p")).to_contain_text("in its next round")
        folder.ask([rate("a")])
        expect(page.locator(".item")).to_contain_text("item a")
        press(page, "2")
        over.append(True)
        expect(page.locator("#quiet p")).to_contain_text("The run has ended")


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
        count(page, "0 of 3")
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
            expect(box).to_be_in_viewport()
            press(page, "3")
        expect(page.get_by_role("heading", level=1)).to_have_text("All answered")
        sent(page)


def test_every_control_has_a_name_and_news_is_spoken(visit, folder):
    folder.ask([rate("a"), rate("b")])
    with running(folder) as server:
        page = visit(server)
        expect(page.get_by_role("status")).to_have_text("Is the model’s score right? item a")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Too high")).to_be_focused()
        press(page, ["Enter"])
        expect(page.get_by_role("status")).to_have_text(
            "Too high. Is the model’s score right? item b"
        )
        expect(page.get_by_role("button", name="Too high")).to_be_focused()
        bar = page.get_by_role("progressbar", name="Answers in this sitting")
        expect(bar).to_have_attribute("aria-valuenow", "1")
        sent(page)


def test_what_is_answered_here_teaches_a_run_and_is_nowhere_in_it(visit, tmp_path, monkeypatch):
    """A live run, an answer to everything that waits, and the run resumed."""
    pytest.importorskip("numba", reason="FedRLHF's network needs the extra classic")
    from fedrl.algorithms.fedrlhf import FedRLHF

    updates = []
    local = FedRLHF.local
    monkeypatch.setattr(
        FedRLHF, "local", lambda self, job: [r := local(self, job), updates.append(r.update)][0]
    )
    people = tmp_path / "people"
    words = {
        "rounds": 1, "out": tmp_path / "runs", "federation.clients": 2, "algorithm.rate": 6,
        "algorithm.compare": 6, "algorithm.feedback": "live", "algorithm.feedback-folder": people,
    }  # fmt: skip
    flags = [word for key, value in words.items() for word in (f"--{key}", str(value))]
    assert call(["run", "fedrlhf/movielens", *flags]) == 0
    (run,) = (tmp_path / "runs").glob("*/*")
    folder = Folder(client_folder(people, 1))
    with running(folder, 1) as server:
        page = visit(server)
        expect(page.locator("#question")).to_be_visible()
        press(page, "313113131331")
        expect(page.get_by_role("heading", level=1)).to_have_text("All answered")
        sent(page)
    answered = len(folder.answers())
    assert answered == 12
    assert call(["run", "--resume", str(run), "--rounds", "2"]) == 0
    told = [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]
    assert [line["env/answers"] for line in told if line["client"] == 1] == [0, answered]

    asked = folder.view().questions.values()
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
