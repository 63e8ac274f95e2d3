"""A run tells compiling and starting apart from training, and a resumed one adds to both."""

from __future__ import annotations

import json

import pytest
from support.small_runs import ROUNDS, make_runs

from fedrl.cli import call
from fedrl.runs.read import load

pytestmark = pytest.mark.slow


def test_training_and_starting_are_told_apart_also_when_resumed(tmp_path):
    runs = make_runs(tmp_path)
    before = json.loads((runs["half"] / "meta.json").read_text())
    assert 0 < before["startup_seconds"] <= before["seconds"]
    assert call(["run", "--resume", str(runs["half"])]) == 0
    after = json.loads((runs["half"] / "meta.json").read_text())
    assert after["startup_seconds"] > before["startup_seconds"]
    lines = [json.loads(line) for line in (runs["half"] / "timings.jsonl").open()]
    assert [line["round"] for line in lines] == list(range(ROUNDS + 1))
    for line in lines:
        for part, seconds in line["compile"].items():
            assert 0 <= seconds <= line[part] + 1e-3
    run = load(runs["half"])
    assert run.training_seconds > 0
    assert run.training_seconds + run.starting_seconds <= run.seconds + 0.1
    whole, half = ((runs[name] / "metrics.jsonl").read_bytes() for name in ("whole", "half"))
    assert whole == half
