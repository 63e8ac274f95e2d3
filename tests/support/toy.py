"""A small algorithm for tests of the core: federated estimation of a vector, with client state.

Client c pulls θ towards c by noisy steps. Every leaf kind that the core must carry is here: nested
tensors, two dtypes, a scalar in the state, and a state that stays with the client.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrl.core.types import Job, Metrics, Result, Spec, Tensors


class Toy:
    initial_exchange = False
    reports = frozenset({"train/seen", "env/steps"})

    def __init__(self, clients: int = 6, size: int = 3) -> None:
        self.clients = clients
        self.size = size

    def init(self, seed: int) -> Tensors:
        start = np.random.default_rng(seed).standard_normal(self.size)
        return {"theta": {"a": start, "b": np.zeros((2, 2), np.float32)}, "steps": 0}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return {"round": round, "theta": state["theta"]}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"a": Spec((self.size,), "float64"), "b": Spec((2, 2), "float32")}

    def local(self, job: Job) -> Result:
        noise = np.random.default_rng(job.seed)
        theta = job.broadcast["theta"]
        seen = 0 if job.state is None else int(job.state["seen"])
        update = {
            "a": 0.1 * (job.client - theta["a"]) + 0.01 * noise.standard_normal(self.size),
            "b": noise.standard_normal((2, 2)).astype(np.float32),
        }
        metrics = {"train/seen": float(seen), "env/steps": 7.0}
        weight = 1.0 + job.client
        return Result(job.client, update, weight, {"seen": np.array(seen + 1)}, metrics)

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        theta = {name: state["theta"][name] + mean[name] for name in mean}
        return {"theta": theta, "steps": state["steps"] + 1}

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        return {"eval/return": float(np.mean([s["theta"]["a"].mean() for s in states]))}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        return np.full(self.clients, state["theta"]["a"].mean())


class BatchedToy(Toy):
    """The same with `local_many`; a client in `broken` makes the whole call fail."""

    broken: tuple[int, ...] = ()

    def local(self, job: Job) -> Result:
        if job.client in self.broken:
            raise ValueError("broken on purpose")
        return super().local(job)

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        return [self.local(job) for job in jobs]
