"""What a user's own code said, behind our line, where errors may say what they hold."""

from __future__ import annotations

import pytest

from fedrl import cli
from fedrl.cli import call
from fedrl.core.types import Shareable, UserError


def failing(words: list[str]) -> int:
    try:
        try:
            1 / int("0")
        except ZeroDivisionError as error:
            line = "world.reward 'broken' raised ZeroDivisionError"
            raise UserError(Shareable(line) if words == ["withheld"] else line) from error
    except UserError as error:
        raise UserError(f"{error}\ngo on with: fedrl run --resume RUN") from error
    return 0


@pytest.mark.parametrize(("value", "told"), [("1", True), ("0", False), ("", False)])
def test_the_cause_of_a_mistake_is_told_where_errors_may_say_it(monkeypatch, capsys, value, told):
    monkeypatch.setattr(cli, "find", lambda name: failing)
    monkeypatch.setenv("FEDRL_DEBUG", value)
    assert call(["list"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: world.reward 'broken' raised ZeroDivisionError")
    assert ("  ZeroDivisionError: division by zero" in said) == told


@pytest.mark.parametrize(("value", "told"), [("1", False), ("0", True)])
def test_where_errors_do_not_say_what_they_hold_it_is_told_how_they_may(
    monkeypatch, capsys, value, told
):
    monkeypatch.setattr(cli, "find", lambda name: failing)
    monkeypatch.setenv("FEDRL_DEBUG", value)
    assert call(["list", "withheld"]) == 2
    assert ("(FEDRL_DEBUG=1 shows more)" in capsys.readouterr().err) == told
    assert call(["list"]) == 2  # nothing was left out of this line
    assert "FEDRL_DEBUG" not in capsys.readouterr().err
