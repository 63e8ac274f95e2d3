"""What there is of FedQHD's grid, as its page compares it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrl.core.types import Tables
from reproductions.fedqhd.gap import RIDGELESS, USUAL
from reproductions.fedqhd.plan import REFERENCE, Plan
from reproductions.results import Runs, Trained
from reproductions.verdicts import BySeed, above, gap, number, signed, slope, values

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
RETURN = "train/return_last100"
"""The paper's figure of merit: the last 100 episodes of training, mean over clients."""
LAST_ROUNDS = 3
"""Evaluations behind a policy's value: one of 20 episodes is noisy."""
ALONE = "box, alone, λ → 0"
Lines = dict[str, dict[int, np.ndarray]]


@dataclass(frozen=True)
class Results:
    """`errors[part]` has a list of points for every draw that has a record; `full` is what there
    is of Table 1 at the paper's sizes, beside a smaller scale; `tried` the published tries."""

    plan: Plan
    parts: Mapping[str, Runs]
    errors: Mapping[str, Sequence[Sequence[Tables]]]
    full: Runs
    full_plan: Plan
    tried: Mapping[tuple[str, str], Sequence[Tables]]
    ridge: float = USUAL
    """λ whose errors are judged."""


def returns(found: Runs, plan: Plan, task: str, method: str, encoders: str) -> BySeed:
    """By seed, of the run behind a cell of the table; nothing where there is none, or not whole."""
    name = plan.learner(method, encoders)
    return ended(found[f"{task}-{name}"]) if name else {}


def ended(one: Trained, metric: str = RETURN) -> dict[int, float]:
    return one.last(metric)


def shown(by_seed: BySeed, digits: int = 1) -> str | None:
    return number(values(by_seed), digits)


def judged(ours: BySeed, base: BySeed) -> str | None:
    """Whether ours is better, in words and numbers."""
    difference = gap(ours, base)
    return None if difference is None else f"**{above(difference)}** ({signed(difference)})"


def reaches(ours: BySeed, paper: float) -> str | None:
    """The paper's mean against our interval."""
    difference = gap(ours, dict.fromkeys(ours, paper))
    if difference is None:
        return None
    mean, half = difference
    word = "yes" if mean >= 0 else "within the interval" if mean + half >= 0 else "no"
    return f"**{word}** ({signed(difference)})"


def reproduced(ours: BySeed, paper: float, spread: float) -> str | None:
    """Whether a number of the paper is ours, within its deviation over seeds and our interval."""
    difference = gap(ours, dict.fromkeys(ours, paper))
    if difference is None:
        return None
    mean, half = difference
    same = abs(mean) <= spread + (half if half == half else 0.0)
    return f"**{'yes' if same else 'no'}** ({signed(difference)})"


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


# Policies


def value(one: Trained) -> dict[int, float]:
    """The greedy policy's, by seed."""
    return one.late("eval/return", LAST_ROUNDS)


def policy_gap(results: Results, one: Trained) -> dict[int, float]:
    """How much less than Oracle QHD's greedy policy earns, by seed."""
    best = value(results.parts["dimension"][REFERENCE])
    return {seed: best[seed] - ours for seed, ours in value(one).items() if seed in best}


def by_clients(results: Results, task: str) -> dict[int, BySeed]:
    """By N, the return of the last round's episodes, mean over clients."""
    found, plan = results.parts["clients"], results.plan
    cells = {count: found[f"{task}-{count}"] for count in plan.sizes.agents}
    cells[plan.clients] = found[f"{task}-fedqhd-shared"]
    return {n: ended(cells[n], "train/return") for n in sorted(cells)}
