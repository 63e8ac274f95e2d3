"""The theorem's constants of a run: a few clients' local steps, played again with other seeds.

A replay is one local step of one client at the run's start or at its newest checkpoint; its change
of θ over the step size is a (pseudo-)gradient. How it varies with the seed is noise, how clients'
means differ is heterogeneity. Vectors are added up as they come: memory does not grow with the
number of replays.

What a few replays at two points cannot see makes an estimate too small: G, σ, ζ and L are suprema
over all θ. The square of a mean of noisy vectors is too large by the noise, which is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrl.algorithms.fedagent.convergence import Plan
from fedrl.algorithms.fedagent.settings import Settings as AgentSettings
from fedrl.analysis.plan import Estimate, require
from fedrl.config.build import build_algorithm
from fedrl.config.loading import read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core import seeding, tree
from fedrl.core.limits import not_negative
from fedrl.core.types import Algorithm, Job, Tensors, UserError
from fedrl.federation import round_loop
from fedrl.runs.evaluate import newest
from fedrl.runs.read import load
from fedrl.runs.run_dir import RunDir, require_run

STEPS = ("local_epochs", "local_steps")
"""What methods call τ."""

Vector = dict[str, np.ndarray]


@dataclass(frozen=True)
class Replay:
    """How a run is measured."""

    clients: int = 4
    times: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.clients < 2 or self.times < 2:
            raise UserError("--replay-clients and --replays must be at least 2: spread needs two")
        not_negative(self, "--", "seed")


class Point(NamedTuple):
    """What was measured at one θ, noise not yet subtracted. [n] clients, `times` replays each."""

    theta: Tensors
    mean: Vector  # over clients and replays
    norms: list[float]  # ‖mean over replays‖² by client
    within: list[float]  # variance over replays by client
    times: int

    @property
    def noise(self) -> float:
        """σ²: the variance of one step's gradient, a mean over clients."""
        return float(np.mean(self.within))

    @property
    def squares(self) -> float:
        """Mean over clients of ‖∇J_k‖²; may come out negative where noise is all there is."""
        return float(np.mean(self.norms)) - self.noise / self.times

    @property
    def spread(self) -> float:
        """Variance of ∇J_k over clients (as of a sample); negative where noise is all there is."""
        n = len(self.norms)
        between = (sum(self.norms) - n * _square(self.mean)) / (n - 1)
        return between - self.noise / self.times

    def slope(self, clients: int) -> float:
        """‖∇J‖², less what chance adds to it; `clients` is K."""
        n = len(self.norms)
        chance = self.noise / self.times + (1 - n / clients) * max(self.spread, 0.0)
        return _square(self.mean) - chance / n


class Measured(NamedTuple):
    estimates: list[Estimate]
    plan: Plan
    clients: int
    notes: list[str]
    unit: float = 1.0  # of the gradient: a run's step size is over it


def measure(
    path: Path, how: Replay, said: dict[str, float], tell: Callable[[str], None]
) -> Measured:
    """Constants and plan of the run in `path`; what was `said` is not overruled."""
    require(said)
    require_run(path)
    config = resolve(read_recipe(path / "config.toml"))
    if config.federation.kind != "federated":
        raise UserError(
            f"{path} is a {config.federation.kind} run; the theorem is about federated ones"
        )
    steps_key = next((key for key in STEPS if hasattr(config.algorithm, key)), None)
    if steps_key is None:
        raise UserError(
            f"{path} is a run of {config.algorithm.name}, whose local steps cannot be replayed: "
            "give the estimates as flags"
        )
    lr = float(config.algorithm.lr)
    steps = int(getattr(config.algorithm, steps_key))
    clients = config.federation.clients
    if clients < 2:
        raise UserError(f"{path} has one client; there is nothing to plan between clients")
    plan = Plan(config.federation.cohort or clients, steps, config.rounds)
    last = newest(RunDir(path).checkpoints(), config)
    if last is None or last.round < 1:
        raise UserError(f"{path} has no checkpoint of a finished round yet")
    gaps, origin = _gaps(path, last.round, said)  # what is missing is said before the replays
    points = _points(last, config, steps_key, lr, how, tell)
    if not any(point.squares > 0 or point.noise > 0 for point in points):
        raise UserError(f"no local step of {path} moved the model: there is nothing to measure")
    notes = [
        f"Measured by {how.times} replays of one local step of {len(points[0].norms)} clients at "
        f"the start and at round {last.round}. G, σ, ζ and L are the largest values over all θ in "
        "the theorem: measured at two points they are lower bounds, and μ, the smallest, is an "
        "upper one."
    ]
    unit = 1.0
    if isinstance(config.algorithm, AgentSettings):
        unit, note = adam_unit(points, gaps)
        points, lr = [scaled(point, unit) for point in points], lr / unit
        notes.append(note)
    measured = _estimates(points, gaps, clients, 1 / (lr * steps))
    measured.append(Estimate("gap", gaps[0], origin))
    estimates = [
        Estimate(known.symbol, said[known.symbol], "you") if known.symbol in said else known
        for known in measured
    ]
    smoothness = next(known.value for known in estimates if known.symbol == "L")
    if lr * steps * smoothness <= 1:
        plan = replace(plan, lr=lr)
    else:
        notes.append(
            f"The run's step of {lr * unit:g} is longer than the theorem's 1/(Lτ) = "
            f"{unit / (smoothness * steps):.3g}; the table uses the latter."
        )
    return Measured(estimates, plan, clients, notes, unit)


def _points(
    last: round_loop.Snapshot,
    config: Config,
    steps_key: str,
    lr: float,
    how: Replay,
    tell: Callable[[str], None],
) -> list[Point]:
    """At the run's start and at the snapshot `last`."""
    one_step = replace(config.algorithm, **{steps_key: 1})
    algorithm = build_algorithm(replace(config, algorithm=one_step))
    start = algorithm.init(seeding.derive(config.seed, "init"))
    first = round_loop.Snapshot(0, [start])
    draw = seeding.generator(how.seed, "plan")
    everybody = config.federation.clients
    drawn = draw.choice(everybody, min(how.clients, everybody), replace=False)
    chosen = sorted(int(client) for client in drawn)
    done, total = 0, 2 * len(chosen) * how.times

    def count() -> None:
        nonlocal done
        done += 1
        tell(f"{done} of {total} local steps replayed")

    return [replayed(algorithm, snapshot, chosen, how, lr, count) for snapshot in (first, last)]


def replayed(
    algorithm: Algorithm,
    snapshot: round_loop.Snapshot,
    chosen: Sequence[int],
    how: Replay,
    lr: float,
    count: Callable[[], None],
) -> Point:
    """One local step of each chosen client, `how.times` times, from the snapshot's θ."""
    state, number = snapshot.states[0], snapshot.round + 1
    broadcast = algorithm.broadcast(state, number)
    names = set(tree.flatten(state["theta"]))
    norms, within = [], []
    everyone: Vector = {}
    for client in chosen:
        mine: Vector = {}
        squares = 0.0
        for replay in range(how.times):
            seed = seeding.derive(how.seed, f"plan/{number}", replay, client)
            job = Job(client, broadcast, snapshot.clients.get(client), seed)
            update = tree.flatten(algorithm.local(job).update)
            gradient = {n: np.asarray(a) / lr for n, a in update.items() if n in names}
            squares += _square(gradient)
            mine = _plus(mine, gradient, 1 / how.times)
            count()
        norms.append(_square(mine))
        within.append(max(squares - how.times * norms[-1], 0.0) / (how.times - 1))
        everyone = _plus(everyone, mine, 1 / len(chosen))
    return Point(state["theta"], everyone, norms, within, how.times)


def adam_unit(points: Sequence[Point], gaps: Sequence[float]) -> tuple[float, str]:
    """What a gradient of AdamW's steps must be multiplied by to be one of J, and a note.

    Along the way from the start to the end ∇J adds up to the rise of J; the trapezoid of the two
    measured gradients adds up to something else, because AdamW rescales them.
    """
    first, last = points
    way = _plus(tree.flatten(last.theta), tree.flatten(first.theta), -1.0)
    climb = sum(float(((first.mean[n] + last.mean[n]) / 2 * way[n]).sum()) for n in way)
    rise = gaps[0] - gaps[1]
    why = "AdamW steps along a rescaled gradient, and what is measured is what the server averages"
    if climb <= 0 or rise <= 0:
        return 1.0, f"{why}: as J did not rise along it, its unit and the bound's are unknown."
    return rise / climb, (
        f"{why}: times {rise / climb:.3g}, so that it adds up to the rise of J by {rise:.3g} "
        "between the two points. Step sizes are over the same factor."
    )


def scaled(point: Point, unit: float) -> Point:
    return point._replace(
        mean={name: unit * array for name, array in point.mean.items()},
        norms=[unit**2 * norm for norm in point.norms],
        within=[unit**2 * variance for variance in point.within],
    )


def _estimates(
    points: Sequence[Point], gaps: Sequence[float], clients: int, step: float
) -> list[Estimate]:
    """`step` is the L that the run's own step size presumes."""
    noise = max(point.noise for point in points)
    squares = max(point.squares for point in points)
    origin = "measured: root mean square over clients"
    if squares <= 0:
        squares = max(point.noise / point.times for point in points)
        origin = "drowned in noise: the size of that noise"
    spread = max(point.spread for point in points) * (clients - 1) / clients
    smoothness, how_smooth = _smoothness(points, step)
    slopes = [
        max(point.slope(clients), 0.0) / (2 * gap) for point, gap in zip(points, gaps, strict=True)
    ]
    most = min(smoothness, squares / (2 * gaps[0]))
    pl, how_pl = min(slopes), "measured: ‖∇J‖² / (2·gap), the smaller of two points"
    if not 0 < pl <= most:
        how_pl = "drowned in noise" if pl <= 0 else f"measured {pl:.4g}, too large"
        pl, how_pl = most, f"{how_pl}: the largest that L, G and the gap allow"
    return [
        Estimate("G", math.sqrt(squares), origin),
        Estimate("σ", math.sqrt(noise), "measured: over replays of the same client"),
        Estimate(
            "ζ",
            math.sqrt(max(spread, 0.0)),
            "measured: between clients, less the noise" if spread > 0 else "drowned in noise: 0",
        ),
        Estimate("L", smoothness, how_smooth),
        Estimate("μ", pl, how_pl),
    ]


def _smoothness(points: Sequence[Point], step: float) -> tuple[float, str]:
    """The change of the mean gradient from the start to the end, over the distance."""
    first, last = points
    far = _square(_plus(tree.flatten(last.theta), tree.flatten(first.theta), -1.0))
    change = _square(_plus(last.mean, first.mean, -1.0))
    change -= sum(point.noise / (point.times * len(point.norms)) for point in points)
    if far <= 0 or change <= 0:
        return step, "drowned in noise: 1/(ητ), what the run's step presumes"
    return math.sqrt(change / far), "measured: change of ∇J from the start to the end"


def _gaps(path: Path, end: int, said: dict[str, float]) -> tuple[list[float], str]:
    """J(θ*) − J at the start and at the end; a success rate can be 1 at most."""
    rounds = load(path).rounds
    name = next((n for n in ("eval/success", "eval/return") if n in rounds.get(0, {})), None)
    if name is None:
        raise UserError(f"{path} has no evaluation of round 0: give --gap")
    at = max(r for r, metrics in rounds.items() if name in metrics and r <= end)
    first, last = rounds[0][name], rounds[at][name]
    if "gap" in said:
        return [said["gap"], max(said["gap"] - (last - first), 1e-9)], "you"
    if name != "eval/success":
        raise UserError(
            f"the best return of {path} is not known: say how far from it the start is, --gap"
        )
    return [max(1 - first, 1e-9), max(1 - last, 1e-9)], f"success {first:.1%} at the start"


def _square(vector: Vector) -> float:
    return float(sum(np.square(array, dtype=float).sum() for array in vector.values()))


def _plus(total: Vector, vector: Vector, factor: float) -> Vector:
    """total + factor · vector, where an empty total is zero."""
    if not total:
        return {name: factor * np.asarray(array) for name, array in vector.items()}
    return {name: total[name] + factor * vector[name] for name in total}
