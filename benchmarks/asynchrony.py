"""Simulated time until CartPole is balanced: waiting for everybody beside buffers of K updates.

python benchmarks/asynchrony.py [--quick] [--json FILE]

PAvg, 10 clients whose times for a job are log-normal (σ = 1 between clients, 0.2 between jobs; the
median is one unit) and whose poles and pushes differ. K = 10 is the synchronous run on that clock.
A smaller buffer makes more steps out of the same updates, so it is compared with the synchronous
run with the same server step and with one whose step is 10/K times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import harness
import numpy as np

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.momentum.algorithm import Momentum, Settings
from fedrl.engines.in_process import InProcess
from fedrl.envs.control import cartpole
from fedrl.federation import async_settings as buffered
from fedrl.federation import client_sampling, round_loop
from fedrl.federation.async_buffer import AsyncBuffer
from fedrl.federation.simulated_clock import SimulatedClock, durations
from fedrl.report.plots import interval

CLIENTS, SPREAD, JITTER, TARGET, LOCAL_LR = 10, 1.0, 0.2, 80.0, 0.004


class Way(NamedTuple):
    """K, what staleness does, and the server's step in units of the clients' mean change."""

    size: int
    staleness: Literal["sqrt", "none"] = "sqrt"
    server: float = 1.0


class Reached(Exception):
    """The run may end."""


class Found(NamedTuple):
    """At the first evaluation that reached the target; infinite where none did."""

    time: float
    steps: float
    environment_steps: float
    staleness: float


class Nowhere:
    """A store that keeps nothing."""

    def load(self) -> None: ...
    def log(self, done: round_loop.Round) -> None: ...
    def log_clients(self, records: list[dict]) -> None: ...
    def checkpoint(self, snapshot: round_loop.Snapshot) -> None: ...


def until(target: float, history: list[dict]) -> Callable[[round_loop.Round], None]:
    def observe(done: round_loop.Round) -> None:
        history.append(done.metrics)
        if done.metrics.get("eval/return", 0.0) >= target:
            raise Reached

    return observe


def measure(way: Way, seed: int, target: float, updates: int) -> Found:
    """At most so many updates, whatever the number of steps that they make."""
    carts = cartpole.Settings(length_spread=0.5, force_spread=0.5)
    world = cartpole.World(carts, CLIENTS, seed)
    settings = Settings("pavg", beta=1.0, lr=LOCAL_LR, standardize=True, eval_episodes=50)
    settings = replace(settings, server_lr=way.server * LOCAL_LR * settings.local_steps)
    algorithm = Momentum(settings, world, 1, [[client] for client in range(CLIENTS)])
    buffer = buffered.Settings(way.size, way.staleness, spread=SPREAD, jitter=JITTER)
    inner = InProcess(algorithm)
    engine = SimulatedClock(inner, durations(seed, (), SPREAD, JITTER))
    history: list[dict] = []
    try:
        round_loop.run(
            client_sampling.Settings(clients=CLIENTS), algorithm, inner, aggregate.mean, Nowhere(),
            seed=seed, rounds=updates // way.size, observers=[until(target, history)],
            exchange=AsyncBuffer(buffer, engine),
        )  # fmt: skip
        return Found(np.inf, np.inf, np.inf, np.inf)
    except Reached:
        last = history[-1]
        staleness_mean = np.mean([m["async/staleness_mean"] for m in history[1:]])
        return Found(last["async/time"], len(history) - 1, last["env/steps"], float(staleness_mean))


def main() -> None:
    options = harness.options(__doc__ or "").parse_args()
    harness.header("Time to a return, waiting and not waiting")
    results = harness.Results()
    seeds = range(1 if options.quick else 5)
    target = 40.0 if options.quick else TARGET
    waiting = [Way(CLIENTS), Way(CLIENTS, server=2.0), Way(CLIENTS, server=5.0)]
    times: dict[Way, np.ndarray] = {}
    print(f"return {target:g} of 100, {len(seeds)} seeds: mean and 95% interval")
    for way in [*waiting, Way(5), Way(5, "none"), Way(2), Way(2, "none")]:
        found = [measure(way, seed, target, 4000) for seed in seeds]
        times[way] = np.array([f.time for f in found])
        faster = [
            interval(times[Way(CLIENTS, server=server)] / times[way])
            for server in (1.0, CLIENTS / way.size)
            if way.size < CLIENTS
        ]
        means = [float(np.mean([f[i] for f in found])) for i in range(4)]
        print(
            f"K = {way.size:2}, {way.staleness}, server step {way.server:g}: "
            f"time {means[0]:7.1f}, {means[1]:6.1f} steps, "
            f"{means[2]:9,.0f} environment steps, staleness {means[3]:.2f}; "
            + " and ".join(f"{mean:.1f} ± {half:.1f}" for mean, half in faster)
            + (" times as fast" if faster else ""),
            flush=True,
        )
        name = f"k{way.size}_{way.staleness}_{way.server:g}"
        results.add(f"time_{name}", means[0], "units")
        results.add(f"environment_steps_{name}", means[2], "steps")
        for against, (mean, _) in zip(("same_step", "larger_step"), faster):
            results.add(f"faster_{name}_{against}", float(mean), "x")
    results.finish(options.json)


if __name__ == "__main__":
    main()
