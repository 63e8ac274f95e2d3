"""Runs in Gymnasium's environments: stopped and resumed, in workers, evaluated, reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("gymnasium", reason="the world is Gymnasium's")
pytest.importorskip("jax", reason="policy gradients are compiled by JAX")
pytest.importorskip("numba", reason="Q-learners are compiled by numba")

from fedrl.cli import call
from fedrl.runs.progress import Progress

pytestmark = pytest.mark.slow

PENDULUM = """
rounds = 3
[federation]
clients = 2
[algorithm]
name = "fedsvrpg-m"
local_steps = 2
eval_episodes = 2
[world]
name = "gymnasium"
id = "Pendulum-v1"
kwargs = ["g=8.0:12.0"]
attributes = ["m=0.5:1.5"]
horizon = 10
"""
CARTPOLE = """
rounds = 3
[federation]
clients = 2
[algorithm]
name = "feddqn"
episodes = 2
eval_episodes = 2
[world]
name = "gymnasium"
attributes = ["gravity=5.0:15.0"]
horizon = 20
"""


@pytest.fixture(params=[PENDULUM, CARTPOLE], ids=["policy gradient", "Q-learning"])
def recipe(request, tmp_path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(request.param)
    return file


def run(recipe: Path, name: str, *flags: str) -> Path:
    out = recipe.parent / name
    assert call(["run", str(recipe), "--out", str(out), *flags]) in (0, 130)
    return next(out.glob("*/*"))


def metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def test_a_stopped_run_goes_on_with_the_same_numbers(recipe, monkeypatch, capsys):
    whole = run(recipe, "whole")
    with monkeypatch.context() as patch:

        def stop(_: Progress, done) -> None:
            if done.round == 1:
                raise KeyboardInterrupt

        patch.setattr(Progress, "round_done", stop)
        half = run(recipe, "half")
    assert len(metrics(half)) < len(metrics(whole))
    assert call(["run", "--resume", str(half)]) == 0
    assert metrics(half) == metrics(whole)

    assert call(["eval", str(whole), "--episodes", "2"]) == 0
    assert call(["report", str(whole)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_workers_give_the_same_numbers(recipe):
    alone = metrics(run(recipe, "alone"))
    beside = metrics(run(recipe, "beside", "--engine", "workers", "--workers", "2"))
    assert alone == beside
