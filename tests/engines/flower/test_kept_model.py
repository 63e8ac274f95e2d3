"""What a node keeps of runs for its owner, who has a disk with an end."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrl.engines.flower import kept_model, messages

JOB = messages.Job("n", 0, 1, "run", "", 2, 0.0, "rounds = 1\n", "d")


def test_models_of_so_many_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A coordinator that calls every round another run would fill the disk; none is removed."""
    monkeypatch.setattr(kept_model, "MOST", 3)
    said: list[str] = []
    for number in range(5):
        job = replace(JOB, run=f"run-{number}")
        kept_model.keep_if_possible(tmp_path, 0, job, {"x": np.zeros(1)}, said.append)
    kept = sorted(path.stem for path in (tmp_path / kept_model.FOLDER).glob("*.safetensors"))
    assert kept == ["run-0", "run-1", "run-2"]
    assert len(said) == 2
    assert "has 3 already" in said[0]
    kept_model.keep(tmp_path, 0, replace(JOB, run="run-1", round=7), {"x": np.ones(1)})
    assert kept_model.load(tmp_path, "run-1").broadcast["x"] == 1  # of one that is, the last


def test_of_several_runs_the_last_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for number in (3, 1, 2):
        job = replace(JOB, run=f"run-{number}")
        kept_model.keep(tmp_path, 0, job, {"x": np.full(1, float(number))})
        os.utime(tmp_path / kept_model.FOLDER / f"run-{number}.safetensors", (1.0, 10.0 - number))
    assert kept_model.load(tmp_path).broadcast["x"] == 1
    assert "this is about the last, run-1 (--run)" in capsys.readouterr().err
    assert kept_model.load(tmp_path, "run-3").broadcast["x"] == 3
    assert capsys.readouterr().err == ""
