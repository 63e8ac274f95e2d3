"""What people type that the parser cannot take, in one line that says what was meant."""

from __future__ import annotations

import pytest

from fedrl import cli


@pytest.mark.parametrize(
    "command", [["export", "--out", "model"], ["eval"], ["serve"], ["record", "--out", "a.gif"]]
)
def test_more_runs_than_a_command_takes_are_counted_and_named(
    capsys: pytest.CaptureFixture[str], command: list[str]
):
    assert cli.call([command[0], "runs/x/1", "runs/x/2", *command[1:]]) == 2
    line = f"error: fedrl {command[0]} takes one run; you gave 2: runs/x/1, runs/x/2\n"
    assert capsys.readouterr().err == line


def test_an_unknown_flag_is_still_one(capsys: pytest.CaptureFixture[str]):
    assert cli.call(["eval", "runs/x/1", "--episode", "3"]) == 2
    said = capsys.readouterr().err
    assert said == "error: unrecognized arguments: --episode 3; see `fedrl eval --help`\n"
