"""What the round loop itself costs: memory over many clients, overhead per client.

python benchmarks/rounds.py [--quick] [--json FILE]
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.momentum.algorithm import Momentum, Settings
from fedrl.core.types import Job, Metrics, Result, Spec, Tensors
from fedrl.engines.in_process import InProcess
from fedrl.envs.control import cartpole
from fedrl.federation import client_sampling, round_loop
from fedrl.runs.run_dir import RunDir


def resident_mb() -> float:
    """Memory of this process now, not its peak."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def timed(owner: Any, names: Sequence[str]) -> Callable[[], float]:
    """Wrap these methods of one object; the answer tells the seconds spent inside so far."""
    spent = [0.0]

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*args)
            finally:
                spent[0] += time.perf_counter() - start

        return call

    for name in names:
        setattr(owner, name, wrap(getattr(owner, name)))
    return lambda: spent[0]


def play(
    settings: client_sampling.Settings,
    algorithm: Any,
    rounds: int,
    eval_every: int,
    observe: Callable[[round_loop.Round, float], None],
) -> None:
    """`observe` is also told the seconds that the store has taken so far."""
    with tempfile.TemporaryDirectory() as folder:
        store = RunDir.create(Path(folder), "benchmark", 0, "")
        storing = timed(store, ["log", "checkpoint"])
        round_loop.run(
            settings,
            algorithm,
            InProcess(algorithm),
            aggregate.mean,
            store,
            seed=0,
            rounds=rounds,
            eval_every=eval_every,
            observers=[lambda done: observe(done, storing())],
        )
        store.close()


def many_clients(results: harness.Results, quick: bool) -> None:
    """10,000 clients, 100 per round: memory must not grow with rounds, nor time with clients."""
    clients, cohort, rounds = 10_000, 100, 60 if quick else 200
    world = cartpole.World(cartpole.Settings(horizon=30), clients, 0)
    settings = Settings(
        beta=0.5, local_steps=3, lr=0.01, return_scale=0.01, weight_clip=1.2, eval_episodes=1
    )
    algorithm = Momentum(settings, world, rounds, [[client] for client in range(clients)])
    inside = timed(algorithm, ["local_many", "evaluate"])
    memory: dict[int, float] = {}
    marks: dict[int, np.ndarray] = {}

    def observe(done: round_loop.Round, storing: float) -> None:
        marks[done.round] = np.array([time.perf_counter(), inside(), storing])
        if done.round % 20 == 0:
            gc.collect()
            memory[done.round] = resident_mb()
            print(f"round {done.round:4}: resident {memory[done.round]:.1f} MB", flush=True)

    play(client_sampling.Settings(clients=clients, cohort=cohort), algorithm, rounds, 50, observe)
    half = rounds // 40 * 20  # by then everything is compiled
    whole, working, storing = 1e3 * (marks[rounds] - marks[half]) / (rounds - half)
    results.add("rounds_ms_per_round", whole, "ms")
    results.add("overhead_ms_per_client", (whole - working - storing) / cohort, "ms")
    results.add("store_ms_per_client", storing / cohort, "ms")
    results.add("resident_mb", memory[rounds], "MB")
    results.add("resident_growth_second_half", memory[rounds] - memory[half], "MB")


@dataclass(frozen=True)
class Constant:
    """A toy whose clients send the same megabyte again and again, without work of their own."""

    update: np.ndarray
    initial_exchange: bool = False
    reports: frozenset[str] = frozenset()

    def init(self, seed: int) -> Tensors:
        return {"w": np.zeros_like(self.update)}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return state

    def declare(self, broadcast: Tensors) -> Mapping[str, Spec]:
        return {"w": Spec(self.update.shape, self.update.dtype.name)}

    def local(self, job: Job) -> Result:
        return Result(job.client, {"w": self.update})

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return {"w": state["w"] + mean["w"]}

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        return {"eval/return": float(states[0]["w"][0])}


def one_megabyte(results: harness.Results, quick: bool) -> None:
    """A whole round of 100 clients, checks and checkpoint included, beside NumPy's mean."""
    clients, rounds = 100, 10 if quick else 30
    update = np.random.default_rng(0).standard_normal(250_000).astype(np.float32)
    marks: list[float] = []
    play(
        client_sampling.Settings(clients=clients),
        Constant(update),
        rounds,
        rounds,
        lambda done, storing: marks.append(time.perf_counter()),
    )
    ours = 1e3 * float(np.median(np.diff(marks))) / clients
    bare = []
    for _ in range(5):
        updates = [update] * clients
        start = time.perf_counter()
        np.mean(updates, axis=0, dtype=np.float64)
        bare.append(1e3 * (time.perf_counter() - start) / clients)
    print(f"1 MB updates: {ours:.3f} ms per client, a bare NumPy mean {np.median(bare):.3f} ms")
    results.add("round_ms_per_client_1mb", ours, "ms")
    results.add("numpy_mean_ms_per_client_1mb", float(np.median(bare)), "ms")
    results.add("overhead_ms_per_client_1mb", ours - float(np.median(bare)), "ms")


def main() -> None:
    asked = harness.options(__doc__ or "").parse_args()
    harness.header("rounds: the round loop, in process")
    results = harness.Results()
    one_megabyte(results, asked.quick)
    many_clients(results, asked.quick)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
