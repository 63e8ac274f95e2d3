"""Runs on a federation of real processes, and what is compared of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedrl.config import schema as configs
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core import seeding, tree
from fedrl.core.types import Failure, Job, Result
from fedrl.engines.worker_pool import WorkerPool
from fedrl.runs import open_engine
from fedrl.runs import train as runs
from fedrl.runs.run_dir import RunDir, read_checkpoint

CLIENTS = 3
MOMENTUM = {
    "algorithm": {"name": "fedsvrpg-m", "local_steps": 4},
    "world": {"name": "random_mdp"},
}
TABLE = {"name": "random_mdp", "horizon": 8}
CLASSICS = {
    "fedprox": {"algorithm": {"name": "fedprox", "local_steps": 2}, "world": TABLE},
    "scaffold": {"algorithm": {"name": "scaffold", "local_steps": 2}, "world": TABLE},
    "fednova": {
        "algorithm": {"name": "fednova", "local_steps": 2, "local_steps_spread": 0.5},
        "world": TABLE,
    },
    "fedpg-br": {"algorithm": {"name": "fedpg-br", "trajectories": 4}, "world": TABLE},
    "qavg": {"algorithm": {"name": "qavg", "local_steps": 3}, "world": {"name": "random_mdp"}},
    "fedprox-dqn": {
        "algorithm": {
            "name": "fedprox-dqn",
            "hidden": [8, 8],
            "episodes": 2,
            "batch": 8,
            "replay": 200,
            "eval_episodes": 1,
        },
        "world": {"name": "cartpole-v1"},
    },
}
"""Every method of `algorithms/classics`, small."""
IMPATIENT = """
import flwr.supernode.fleet_http_connection as connection, flwr.supercore.heartbeat as heartbeat
connection.HEARTBEAT_DEFAULT_INTERVAL = heartbeat.HEARTBEAT_DEFAULT_INTERVAL = 10
"""
QUICK = (
    "-c",
    f"""
import sys
from fedrl.cli import call
from fedrl.engines.flower import adapter
adapter.SUPERNODE = {IMPATIENT!r} + adapter.SUPERNODE
sys.exit(call(["flower", "node", *sys.argv[1:], "--poll", "0.3"]))
""",
)
"""A node that is quick in what Flower is slow in, for short tests.

Its SuperNode asks for messages ten times as often, and if it is killed it is given up after 20 s
and not after 60: so long its successor, which has the same key, is not let in.
"""


def config(method: dict, out: Path, *flags: str, rounds: int = 3) -> configs.Config:
    data = {"name": "test", "rounds": rounds, "out": str(out)} | method
    data["federation"] = {"clients": CLIENTS} | data.get("federation", {})
    return resolve(data, flags)


def on_flower(method: dict, out: Path, *flags: str, rounds: int = 3) -> Path:
    return train(
        config(method, out, "--engine", "flower", "--connection", "test", *flags, rounds=rounds)
    )


def one_by_one(method: dict, out: Path, *flags: str, rounds: int = 3) -> Path:
    """The same on this machine, client by client."""
    words = ("--engine", "workers", "--workers", "1")
    return train(config(method, out, *words, *flags, rounds=rounds))


def train(settings: configs.Config) -> Path:
    algorithm = build_algorithm(settings)
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


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]


def rounds_of(run: Path) -> list[int]:
    return [json.loads(line)["round"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def what_the_record_tells(run: Path, method: dict, out: Path, *flags: str) -> Path:
    """The rounds of `run` without any machines: its clients fail where its record says so.

    It has the same numbers as `run` if everything that happened is in the record, and nothing else
    came of what happened.
    """
    rounds = rounds_of(run)[-1]
    seed = config(method, out, *flags).seed
    lost: dict[int, str] = {}
    for r in records(run):
        if r["status"] == "failed":
            purpose = f"local/{r.get('attempt', 1) - 1}"
            lost[seeding.derive(seed, purpose, r["round"], r["client"])] = r["reason"]

    class Losing(WorkerPool):
        def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
            done = iter(super().run([job for job in jobs if job.seed not in lost]))
            for job in jobs:
                yield Failure(job.client, lost[job.seed]) if job.seed in lost else next(done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_engine, "WorkerPool", Losing)
        return one_by_one(method, out, *flags, rounds=rounds)
