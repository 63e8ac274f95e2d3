"""`fedrl list`: whole lines for programs, what fits for people."""

from __future__ import annotations

import sys

import pytest

from fedrl.cli import call


@pytest.mark.parametrize("terminal", [True, False])
def test_a_list_fits_the_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert call(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (max(map(len, lines)) <= 80) == terminal
    assert [line.split()[0] for line in lines].count("momentum/cartpole") == 1


def test_columns_stand_below_each_other(capsys: pytest.CaptureFixture[str]):
    assert call(["list"]) == 0
    tables: dict[str, set[int]] = {}
    for line in capsys.readouterr().out.splitlines():
        if not line.startswith(" "):
            tables[title := line] = set()
        else:
            name = line.split()[0]
            tables[title].add(len(line) - len(line[2:].removeprefix(name).lstrip()))
    assert {title: len(columns) for title, columns in tables.items()} == dict.fromkeys(tables, 1)
