"""`fedrl report`: where its page goes, and which runs a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import write_run

from fedrl.cli import call

pytestmark = pytest.mark.slow


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for seed in range(2):
        write_run(tmp_path / "runs" / "x" / f"pavg-s{seed}", seed=seed)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_a_page_that_is_there_is_replaced_with_a_word(here: Path, capsys):
    both = ["report", "runs/x/pavg-s0", "runs/x/pavg-s1"]
    assert call(both) == 0
    assert last_line(capsys) == "report: report.html"
    assert call(both) == 0
    assert last_line(capsys).startswith("report: report.html, replaced")
    assert call([*both, "--out", "mine.html"]) == 0
    assert last_line(capsys) == "report: mine.html"


def test_a_quoted_pattern_is_what_the_shell_would_have_made_of_it(here: Path, capsys):
    assert call(["report", "runs/x/*"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].split()[-1] == "2"  # seeds
    assert (here / "report.html").is_file()
    assert call(["report", "runs/none-*"]) != 0
    assert "no run is called runs/none-*" in capsys.readouterr().err


def test_a_folder_of_runs_has_its_page_inside(here: Path, capsys):
    assert call(["report", "runs/x"]) == 0
    assert last_line(capsys) == "report: runs/x/report.html"
