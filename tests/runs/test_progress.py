"""Progress without a terminal: a log does not stay empty while a run compiles."""

from __future__ import annotations

import time

import pytest

from fedrl.federation.round_loop import Round
from fedrl.runs import progress
from fedrl.runs.progress import NoSignal, Progress, Quiet


def told(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Wait until they are said; pytest ends a test in which they never are."""
    said = ""
    while words not in said:
        time.sleep(0.01)
        said += capsys.readouterr().err


def test_what_takes_long_at_the_start_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(progress, "STARTING_SECONDS", (0.01, 0.02))
    with Progress() as shown:
        told(capsys, "getting ready for the first round, which takes longest the first time\n")
        told(capsys, " s so far\n")
        shown.round_done(Round(0, 5, {}, [], {}))
        assert shown._begun.is_set()


def test_who_waits_for_somebody_does_not_say_that_it_gets_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(progress, "STARTING_SECONDS", (0.01, 0.01))
    shown = Progress()
    shown.note("waiting for client 2: 1 of 3 nodes has not come yet")
    looks = iter([False, False, True])
    monkeypatch.setattr(shown._begun, "wait", lambda pause: next(looks))
    shown._starting()
    assert "getting ready" not in capsys.readouterr().err
    shown.note("all nodes that were awaited are here, after 41 s")
    looks = iter([False, True])
    shown._starting()
    assert "getting ready" in capsys.readouterr().err


def test_a_quick_start_is_not_talked_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(progress, "STARTING_SECONDS", (600.0, 600.0))
    with Progress() as shown:
        shown.round_done(Round(0, 5, {}, [], {}))
    monkeypatch.setattr(progress, "STARTING_SECONDS", (0.0, 0.0))
    with Quiet():
        pass
    assert capsys.readouterr().err == "round 0/5  …\n"


def test_the_exact_distance_is_told_where_a_world_can_be_solved():
    """A theorem about Q is not seen in returns: they are those of the best policy long before."""
    metrics = {"eval/return": 8.403, "eval/q_error": 1.234e-8}
    line = Progress().line(Round(400, 400, metrics, [], {}))
    assert line.startswith("round 400/400  eval/return 8.403  eval/q_error 1.23e-08  ")


def test_an_evaluation_of_an_earlier_round_is_told_as_such():
    shown = Quiet()
    shown.round_done(Round(0, 8, {"eval/success": 0.25}, [], {}))
    later = Round(1, 8, {"train/return": 1.0}, [], {})
    shown.round_done(later)
    assert shown.line(later).startswith("round 1/8  eval/success 0.25 (round 0)  ")
    again = Round(2, 8, {"eval/success": 0.5}, [], {})
    assert shown.line(again).startswith("round 2/8  eval/success 0.5  ")


def test_a_run_that_cannot_learn_says_so_once():
    said: list[str] = []
    look = NoSignal(said.append)
    shares = [None, 1.0, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0]
    for number, share in enumerate(shares):
        look(Round(number, 9, {} if share is None else {"train/zero_advantage": share}, [], {}))
    assert len(said) == 1
    assert said[0].startswith("nothing to learn from since round 4: ")


def test_the_time_left_is_told_without_what_is_compiled(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown = Progress()
    shown.line(Round(0, 10, {}, [], {"clients": 5.0}))
    now[0] = 42.0  # a round of 2 s that compiled for 40 s before
    done = Round(1, 10, {}, [], {"clients": 42.0}, {}, {"clients": 40.0})
    assert shown.line(done).endswith("18 s left")
    assert shown.line(done).endswith("18 s left")  # for the terminal, and for log.txt
