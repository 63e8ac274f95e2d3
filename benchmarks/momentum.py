"""How fast the momentum family is: CartPole beside PyTorch + Gymnasium, Table 2, growth.

python benchmarks/momentum.py [cartpole] [tabular] [growth] [--quick] [--json F] [--plot F.png]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import harness
import numba
import numpy as np

from fedrl.algorithms.momentum.algorithm import Momentum, Settings
from fedrl.algorithms.momentum.batched_seeds import run_seeds
from fedrl.algorithms.momentum.local_steps import tabular_kernels as kernels
from fedrl.algorithms.policy_gradient.algorithm import spread, stack
from fedrl.algorithms.policy_gradient.runners import Start
from fedrl.core import tree
from fedrl.envs.control import cartpole, random_mdp
from fedrl.report import plots

CARTPOLE = Settings(beta=0.2, local_steps=10, lr=0.015, return_scale=0.01, weight_clip=1.2)
TABULAR = Settings(local_steps=32, lr=0.05)
BETAS = (0.1, 0.2, 0.5, 0.8, 1.0)
KAPPAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
WARM_UP = 2
"""The opening and the first round are not timed: they compile."""


@dataclass
class Timed:
    """Seconds and environment steps of a training run, round by round, after the warm-up."""

    rounds: Iterator[float]  # the steps so far
    seeds: int = 1
    warm_up: float = 0.0
    seconds: float = 0.0
    before: float = 0.0
    steps: float = 0.0

    def __post_init__(self) -> None:
        start = time.perf_counter()
        for _ in range(WARM_UP):
            self.before = next(self.rounds)
        self.warm_up = time.perf_counter() - start

    def advance(self, rounds: int) -> None:
        start = time.perf_counter()
        for _ in range(rounds):
            self.steps = next(self.rounds) - self.before
        self.seconds += time.perf_counter() - start

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


def cart_world(clients: int) -> Callable[[int], cartpole.World]:
    return lambda seed: cartpole.World(cartpole.Settings(), clients, seed)


def ours(settings: Settings, seeds: int, rounds: int) -> Iterator[float]:
    """One round more than is read, because the last one evaluates."""
    curves = run_seeds(settings, cart_world(5), range(seeds), rounds + 1, eval_every=rounds + 1)
    for _, metrics in curves:
        yield float(metrics["env/steps"].sum())


def theirs(rounds: int) -> Iterator[float]:
    from torch_loop import Loop

    world = cart_world(5)(0)
    bounds = [float(world.params([client])["initial"][0]) for client in range(5)]
    yield from Loop(CARTPOLE, bounds, world.horizon, world.gamma, rounds + 1).run()


def cartpole_speed(results: harness.Results, quick: bool) -> None:
    """The runs take turns, ten rounds each, so that a busy machine slows all of them alike.

    PyTorch's loop knows no batch of seeds: its rate for 24 of them is its rate for one.
    """
    rounds, block, repeats = (20, 10, 1) if quick else (40, 10, 3)
    lacking = harness.missing("torch", "gymnasium")
    if lacking:
        print(f"cartpole: the PyTorch + Gymnasium loop is skipped, needs {' and '.join(lacking)}")
    hapg = replace(CARTPOLE, name="fedhapg-m", beta=0.8)
    rates: dict[str, list[float]] = {}
    for repeat in range(repeats):
        total = rounds + WARM_UP - 1
        runs = {
            "1_seed": Timed(ours(CARTPOLE, 1, total)),
            "24_seeds": Timed(ours(CARTPOLE, 24, total), 24),
            "hapg_1_seed": Timed(ours(hapg, 1, total)),
        }
        if not quick:
            runs["hapg_24_seeds"] = Timed(ours(hapg, 24, total), 24)
        if not lacking:
            runs["torch"] = Timed(theirs(total))
        for _ in range(rounds // block):
            for run in runs.values():
                run.advance(block)
        for name, run in runs.items():
            episodes = 5 * CARTPOLE.local_steps * rounds * run.seeds
            rates.setdefault(name, []).append(run.rate)
            print(
                f"cartpole {repeat + 1}/{repeats} {name:14} {run.rate:12,.0f} steps/s over {rounds}"
                f" rounds, mean episode {run.steps / episodes:.1f}, warm-up {run.warm_up:.1f} s",
                flush=True,
            )
    for name, values in rates.items():
        results.add(f"cartpole_steps_per_s_{name}", float(np.median(values)), "steps/s")
        if not lacking and name != "torch":
            ratio = np.median(np.array(values) / np.array(rates["torch"]))
            results.add(f"cartpole_ratio_{name}", float(ratio), "x")


def tabular_speed(results: harness.Results, quick: bool) -> None:
    """Table 2: thirty cells of β and κ. numba's loop over pairs uses every core."""
    seeds, chunk, goal = (10, 10, 1000) if quick else (1000, 100, 1000)
    # compiled, or read from numba's cache
    for beta in (0.5, 1.0):
        table_cell(beta, 0.0, range(2), Stopwatch())
    inside = Stopwatch()
    start = time.perf_counter()
    for beta, kappa in itertools.product(BETAS, KAPPAS):
        values = [
            table_cell(beta, kappa, range(first, first + chunk), inside)
            for first in range(0, seeds, chunk)
        ]
        print(f"tabular β {beta} κ {kappa:.1f}: average J {np.mean(values):.3f}", flush=True)
    seconds = time.perf_counter() - start
    share = 1 - inside.seconds / seconds
    print(
        f"tabular: {seconds:.1f} s for 30 cells and {seeds} seeds on {numba.get_num_threads()} "
        f"threads, {100 * share:.0f} % of it outside the kernel"
    )
    kind = "measured" if seeds == goal else f"extrapolated_from_{seeds}_seeds"
    results.add(f"tabular_1000_seeds_{kind}", seconds * goal / seeds, "s")
    results.add("tabular_outside_kernel", share, "share")


class Stopwatch:
    """Seconds inside some calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **named)
            self.seconds += time.perf_counter() - start
            return result

        return timed


def table_cell(beta: float, kappa: float, seeds: Sequence[int], inside: Stopwatch) -> float:
    """Mean final J of one cell of Table 2; `inside` collects the kernel's time."""
    world = random_mdp.Settings(kappa=kappa, horizon=500)
    with mock.patch.object(kernels, "run", inside(kernels.run)):
        *_, (_, last) = run_seeds(
            replace(TABULAR, beta=beta),
            lambda seed: random_mdp.World(world, 20, seed),
            seeds,
            rounds=6,
            eval_every=6,
        )
    return float(last["eval/return"].mean())


def growth(results: harness.Results, quick: bool, path: Path | None) -> None:
    """Seconds per round against clients, local steps and seeds, one thing at a time, one thread."""
    numba.set_num_threads(1)
    few = {"clients": [5, 20, 80], "local steps": [5, 20, 80], "seeds": [1, 4, 16]}
    many = {
        "clients": [5, 10, 20, 40, 80, 160],
        "local steps": [5, 10, 20, 40, 80, 160],
        "seeds": [1, 2, 4, 8, 16, 32],
    }
    panels = []
    for knob, values in (few if quick else many).items():
        lines = {}
        for kind in ("cartpole", "random_mdp"):
            times = [1e3 * round_seconds(kind, knob, value) for value in values]
            lines[kind] = np.array([times])
            each = ", ".join(f"{v}: {ms:.2f}" for v, ms in zip(values, times))
            print(f"growth {kind} ms per round by {knob}: {each}", flush=True)
            exponent = np.polyfit(np.log(values[-2:]), np.log(times[-2:]), 1)[0]
            name = f"growth_{kind}_{knob.replace(' ', '_')}"
            results.add(name, exponent, "exponent")
        at = {kind: np.array(values, float) for kind in lines}
        panels.append(plots.Panel(f"ms per round by {knob}", knob, at, lines))
    if path is not None:
        plots.save(plots.curves(panels), path)
        print(f"growth: plotted to {path}")


def round_seconds(kind: str, knob: str, value: int) -> float:
    """The best round of half a second: 5 clients, 10 local steps and 1 seed but for the knob."""
    clients = value if knob == "clients" else 5
    seeds = value if knob == "seeds" else 1
    base = CARTPOLE if kind == "cartpole" else TABULAR
    settings = replace(base, local_steps=value if knob == "local steps" else 10)
    world: Any = cart_world(clients)(0)
    if kind == "random_mdp":
        world = random_mdp.World(random_mdp.Settings(kappa=1.0), clients, 0)
    algorithm = Momentum(settings, world, 10, [[client] for client in range(clients)])
    pairs = clients * seeds
    params = stack([world.params([pair % clients]) for pair in range(pairs)])
    theta = spread(algorithm.init(0)["theta"], pairs)
    # u_r = 0: no drift, so that episodes stay as long as they are
    anchor = {"previous": theta, "direction": tree.zeros_like(theta)}
    still = Start(theta, anchor, {})
    numbers = np.arange(pairs, dtype=np.uint64)
    algorithm.runner.local(still, params, numbers)  # compiles
    best, until = np.inf, time.perf_counter() + 0.5
    while time.perf_counter() < until:
        start = time.perf_counter()
        algorithm.runner.local(still, params, numbers)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = harness.options(__doc__ or "")
    parts = ("cartpole", "tabular", "growth")
    parser.add_argument(
        "parts", nargs="*", choices=[*parts, []], metavar="PART", help="all of them by default"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the growth as a PNG")
    asked = parser.parse_args()
    harness.header("momentum: PAvg, FedSVRPG-M, FedHAPG-M")
    results = harness.Results()
    chosen = asked.parts or parts
    if "cartpole" in chosen:
        cartpole_speed(results, asked.quick)
    if "tabular" in chosen:
        tabular_speed(results, asked.quick)
    if "growth" in chosen:
        growth(results, asked.quick, asked.plot)
    results.finish(asked.json)


if __name__ == "__main__":
    main()
