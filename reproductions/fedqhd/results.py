"""What there is of FedQHD's grid, as its page compares it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrl.core.types import Tables
from reproductions.fedqhd.gap import RIDGELESS, USUAL
from reproductions.fedqhd.plan import REFERENCE, Plan
from reproductions.records import Data
from reproductions.results import Runs, Trained
from reproductions.verdicts import FAILS, HOLDS, BySeed, gap, number, signed, slope, values

if TYPE_CHECKING:
    from reproductions.fedqhd.tuning import Progress

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
RETURN = "train/return_last100"
"""The paper's figure of merit: the last 100 episodes of training, mean over clients."""
RECENT = "train/return_recent"
"""That of Figure 4: the last 30."""
LAST_ROUNDS = 3
"""Evaluations behind a policy's value: one of 20 episodes is noisy."""
ALONE = "box, alone, λ → 0"
PLAYED, BOX = "rollouts", "box"
Lines = dict[str, dict[int, np.ndarray]]


@dataclass(frozen=True)
class Results:
    """`errors[part]` has a list of points for every draw that has a record; `full` is what there
    is of Table 1 at the paper's sizes, beside a smaller scale; `tried` the earlier tries."""

    plan: Plan
    parts: Mapping[str, Runs]
    errors: Mapping[str, Sequence[Sequence[Tables]]]
    full: Runs
    full_plan: Plan
    tried: Mapping[tuple[str, str], Sequence[Tables]]
    tuned: Mapping[tuple[str, str], Progress] = field(default_factory=dict)
    """By task and learner, how far its tuning is."""
    theorems: Sequence[Data] = ()
    """Records of draws behind Theorem 1, Lemma 1 and Theorem 2."""
    ridge: float = USUAL
    """λ whose errors are judged."""
    error_seconds: Mapping[str, float] = field(default_factory=dict)
    """Of one draw of a part's errors, on average; none without a record."""


def returns(found: Runs, plan: Plan, task: str, method: str, encoders: str) -> BySeed:
    """By seed, of the run behind a cell of the table; nothing where there is none, or not whole."""
    name = plan.learner(method, encoders)
    return ended(found[f"{task}-{name}"]) if name else {}


def ended(one: Trained, metric: str = RETURN) -> dict[int, float]:
    return one.last(metric)


def shown(by_seed: BySeed, digits: int = 1) -> str | None:
    return number(values(by_seed), digits)


def with_seeds(by_seed: BySeed, planned: int, digits: int = 1) -> str | None:
    """And of how many seeds, where they are not all there yet."""
    said = shown(by_seed, digits)
    return said if said is None or len(by_seed) == planned else f"{said} [{len(by_seed)}]"


def reproduced(ours: BySeed, paper: float, spread: float) -> str | None:
    """Whether a number of the paper is ours, within its deviation over seeds and our interval."""
    difference = gap(ours, dict.fromkeys(ours, paper))
    if difference is None:
        return None
    mean, half = difference
    same = abs(mean) <= spread + (half if half == half else 0.0)
    return f"**{HOLDS if same else FAILS}** ({signed(difference)})"


# Errors of compilation


def errors(
    results: Results, part: str, ridge: float, kind: str = "error", source: str = "rollouts"
) -> dict[int, np.ndarray]:
    """By D (or m, where D is fixed), numbers of a kind [draws]: means over clients."""
    key = "features" if part == "dimension" else "anchors"
    found: dict[int, list[float]] = {}
    for draw in results.errors[part]:
        for point in draw:
            if point["ridge"] == ridge and point["source"] == source:
                found.setdefault(int(point[key]), []).append(float(np.mean(point[kind])))
    return {at: np.array(several) for at, several in found.items()}


def by_dimension(results: Results) -> Lines:
    """What Figure 1 shows of errors, the paper's first."""
    used = results.ridge
    return {
        f"largest error, λ = {used:g}": errors(results, "dimension", used),
        f"largest error, λ = {RIDGELESS:g}": errors(results, "dimension", RIDGELESS),
        f"rms error, λ = {used:g}": errors(results, "dimension", used, "rms"),
    }


def by_anchors(results: Results) -> Lines:
    """The same for Figure 3: with anchors of random play and of the box, and a client alone."""
    used = results.ridge
    return {
        f"random play, λ = {used:g}": errors(results, "anchors", used),
        f"box, λ = {used:g}": errors(results, "anchors", used, source="box"),
        ALONE: errors(results, "anchors", used, "alone", "box"),
    }


def slopes(by: Mapping[int, np.ndarray]) -> np.ndarray:
    """Per draw, of log error against log size."""
    x = np.array(list(by))
    return np.array([slope(x, y) for y in np.stack(list(by.values()), 1)])


def regimes(by: Mapping[int, np.ndarray], fixed: int) -> tuple[np.ndarray, np.ndarray]:
    """Per draw, the slopes of log error against log m up to m = D and from there on."""
    below = {m: several for m, several in by.items() if m <= fixed}
    above_it = {m: several for m, several in by.items() if m >= fixed}
    return slopes(below), slopes(above_it)


def span(results: Results, part: str) -> str | None:
    """How large values are, so that an error means something."""
    ranges = [p["range"] for draw in results.errors[part] for p in draw]
    return f"{np.mean(ranges):.0f}" if ranges else None


def compact(samples: np.ndarray | None) -> str | None:
    """An error that may be far below 1."""
    if samples is None:
        return None
    return number(samples, 2) if samples.mean() >= 0.1 else f"{samples.mean():.0e}"


# Policies


def value(one: Trained) -> dict[int, float]:
    """The greedy policy's, by seed."""
    return one.late("eval/return", LAST_ROUNDS)


def policy_gap(results: Results, one: Trained) -> dict[int, float]:
    """How much less than Oracle QHD's greedy policy earns, by seed."""
    best = value(results.parts["dimension"][REFERENCE])
    return {seed: best[seed] - ours for seed, ours in value(one).items() if seed in best}


def by_clients(results: Results, task: str) -> dict[int, BySeed]:
    """By N, the return of the last episodes, mean over clients."""
    found = results.parts["clients"]
    return {n: ended(found[f"{task}-{n}"], RECENT) for n in results.plan.sizes.agents}
