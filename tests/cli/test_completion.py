"""Shells complete commands, recipes and flags; help texts fit a terminal of 80 columns."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedrl import api, cli
from fedrl.cli.completion import SCRIPTS, candidates
from fedrl.cli.flower import PARTS
from fedrl.cli.help_text import fitted
from fedrl.config.loading import as_dict
from fedrl.runs.read import flatten


def test_what_may_come_next():
    assert candidates([""]) == sorted(cli.COMMANDS)
    assert candidates(["wa"]) == ["warmstart", "watch"]
    assert candidates(["run", "fedagent/household_"]) == [
        "fedagent/household_7b_lora", "fedagent/household_lora",
    ]  # fmt: skip
    assert candidates(["flower", "ch"]) == ["check"]
    assert candidates(["watch", "--n"]) == ["--no-browser"]
    assert "--superlink" in candidates(["flower", "check", "--"])
    assert candidates(["report", "runs/"]) == []  # files are the shell's
    assert candidates(["nonsense", "--"]) == []


def test_every_setting_of_a_recipe_is_completed():
    keys = flatten(as_dict(api.configure("momentum/cartpole", [])))
    wanted = {f"--{key}" for key in keys if key.startswith(("algorithm.", "world."))}
    assert wanted <= set(candidates(["run", "momentum/cartpole", "--"])) | {"--algorithm.name"}


@pytest.mark.slow
def test_bash_asks_and_is_answered(tmp_path: Path):
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    command = tmp_path / "fedrl"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m fedrl "$@"\n')
    command.chmod(0o755)
    script = SCRIPTS["bash"] + (
        'COMP_WORDS=(fedrl run momentum/ca); COMP_CWORD=2; _fedrl; echo "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(fedrl rep); COMP_CWORD=1; _fedrl; echo "${COMPREPLY[@]}"\n'
        "complete -p fedrl\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        ["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    first, second, third = told.stdout.splitlines()
    assert (first, second) == ("momentum/cartpole", "report reproduce")
    assert third == "complete -o default -F _fedrl fedrl"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n"], input=SCRIPTS[shell], text=True, check=True)


HELPS = [[], *([name] for name in cli.COMMANDS), *(["flower", part] for part in PARTS)]
HELPS += [["run", "momentum/cartpole"], ["partition", "household"], ["warmstart", "household"]]


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_reads_well_at_80_columns(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        cli.call([*words, "--help"])
    lines = told.getvalue().splitlines()
    assert len(lines) > 2
    assert [line for line in lines if len(line.rstrip()) > 80] == []


def test_rows_keep_their_columns_and_paragraphs_are_filled():
    text = "One two three\nfour five.\n\n  a      alpha beta gamma\n         delta\n  bb     eps"
    assert fitted(text, 40).splitlines() == [
        "One two three four five.", "", "  a      alpha beta gamma delta", "  bb     eps",
    ]  # fmt: skip
    narrow = fitted("  run X   " + "word " * 12, 36).splitlines()
    assert all(line.startswith(" " * 10) for line in narrow[1:])
    assert max(map(len, narrow)) <= 36
