"""Progress without a terminal: a log does not stay empty while a run compiles."""

from __future__ import annotations

import time

import pytest

from fedrl.federation.round_loop import Round
from fedrl.runs import progress
from fedrl.runs.progress import Progress, Quiet


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
        told(capsys, "compiling, which takes longest the first time\n")
        told(capsys, " s so far\n")
        shown.round_done(Round(0, 5, {}, [], {}))
        assert shown._begun.is_set()


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
