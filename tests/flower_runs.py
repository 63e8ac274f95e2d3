"""Runs on a federation of real processes, and what is compared of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrl import tree
from fedrl.experiment import config as configs
from fedrl.experiment import run as runs
from fedrl.experiment.rundir import RunDir, read_checkpoint

CLIENTS = 3
MOMENTUM = {
    "algorithm": {"name": "fedsvrpg-m", "local_steps": 4},
    "world": {"name": "random_mdp"},
}


def config(method: dict, out: Path, *flags: str, rounds: int = 3) -> configs.Config:
    data = {"name": "test", "rounds": rounds, "out": str(out)} | method
    data["federation"] = {"clients": CLIENTS} | data.get("federation", {})
    return configs.resolve(data, flags)


def on_flower(method: dict, out: Path, *flags: str, rounds: int = 3) -> Path:
    return train(
        config(method, out, "--engine", "flower", "--connection", "test", *flags, rounds=rounds)
    )


def one_by_one(method: dict, out: Path, *flags: str, rounds: int = 3) -> Path:
    """The same on this machine, client by client."""
    words = ("--engine", "workers", "--workers", "1")
    return train(config(method, out, *words, *flags, rounds=rounds))


def train(settings: configs.Config) -> Path:
    algorithm = runs.build_algorithm(settings)
    directory = runs.start(settings)
    runs.train(settings, directory, algorithm)
    return directory.path


def same_numbers(a: Path, b: Path) -> None:
    """Parameters and metrics of the two runs, to the bit."""
    x, y = (read_checkpoint(RunDir(path).checkpoints()[0])[0] for path in (a, b))
    assert x.round == y.round
    for one, other in zip(x.states, y.states, strict=True):
        p, q = tree.flatten(one), tree.flatten(other)
        assert p.keys() == q.keys()
        different = [k for k in p if np.asarray(p[k]).tobytes() != np.asarray(q[k]).tobytes()]
        assert not different
    for name in ("metrics.jsonl", "clients.jsonl"):
        assert (a / name).read_text() == (b / name).read_text()
