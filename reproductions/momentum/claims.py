"""The momentum paper's claims and what became of them, decided by the measured numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedrl.report import plots
from reproductions.momentum.parts import FLAT, METHODS, TASKS, WEIGHT, Part
from reproductions.pages import Row
from reproductions.verdicts import verdict

Parts = Mapping[str, Part]


def claims(parts: Parts) -> list[Row]:
    """Every claim, and what became of it; None where a record is missing."""
    rows: list[Row] = [
        small_beta_wins(parts["table2"]),
        flat_in_kappa(parts["table2"]),
        variance_reduction_helps(parts["regimes"]),
    ]
    for task, title in TASKS.items():
        rows += momentum_wins(parts[f"figure1_{task}"], title)
    title = "CartPole, one small step size, before convergence"
    rows += momentum_wins(parts["equal_step"], title)
    return [*rows, *more_agents_are_better(parts["figure2"])]


def small_beta_wins(part: Part) -> Row:
    claim = "Table 2: a small β beats β = 1"
    smallest = part.axis("beta")[0]
    names = [(f"beta={smallest},kappa={k}", f"beta=1.0,kappa={k}") for k in part.axis("kappa")]
    pairs = [(part.get(ours), part.get(base)) for ours, base in names]
    gaps, weights = [], []
    for ours, base in pairs:
        if ours is None or base is None:
            return claim, None
        gaps.append(plots.interval(ours.final() - base.final()))
        weights.append(ours.summary(WEIGHT, "last", "median"))
    always = all(float(gap - half) > 0 for gap, half in gaps)
    return (
        claim,
        f"**{'holds' if always else 'does not hold'}** at the paper's settings: β = {smallest} "
        f"is {np.mean([gap for gap, _ in gaps]):.2f} above β = 1 on average. But not by "
        f"variance reduction: the importance weight is {np.median(weights):.1g} in the last "
        "round (median), and what is left is heavy-ball momentum: PAvg with a larger server "
        "step does as well (see *Why*)",
    )


def flat_in_kappa(part: Part) -> Row:
    claim, moves = "Table 2: flat in κ", []
    if not part.whole:
        return claim, None
    for beta in part.axis("beta"):
        first, *others = (part.found[f"beta={beta},kappa={k}"].final() for k in part.axis("kappa"))
        moves += [plots.interval(other - first) for other in others]
    flat = all(abs(float(move)) <= max(float(half), FLAT) for move, half in moves)
    largest = max(abs(float(move)) for move, _ in moves)
    return (
        claim,
        f"**{'holds' if flat else 'does not hold'}**: the largest move of a row away from "
        f"κ = 0 is {largest:.3f}",
    )


def variance_reduction_helps(part: Part) -> Row:
    claim = "The variance reduction itself helps"
    names = [name for name in part.cells if name.startswith("direct,uniform,")]
    mine = {name: one for name in names if (one := part.get(name))}
    if len(mine) < len(names):
        return claim, None
    base = mine.pop("direct,uniform,beta=1.0")
    best = max(mine.values(), key=lambda one: one.final().mean())
    return (
        claim,
        "in a regime: direct parametrisation, H = 5, small steps, mean weight "
        f"{best.summary(WEIGHT, 'mean'):.2f}: β = {best.cell.labels['beta']} against β = 1: "
        f"**{verdict(best.final(), base.final())}**",
    )


def momentum_wins(part: Part, title: str) -> Iterator[Row]:
    for method in METHODS:
        several = [
            (learner.partition("=")[2], learner)
            for learner in part.cells
            if learner.startswith(method)
        ]
        said = [
            f"β = {beta}: {verdict(part.area(learner), part.area('pavg'), 1)} over the run, "
            f"{verdict(part.final(learner), part.final('pavg'), 1)} at its end"
            for beta, learner in several
        ]
        whole = all(part.get(one) for one in ("pavg", *(learner for _, learner in several)))
        yield f"{title}: some β < 1 beats PAvg ({method})", "; ".join(said) if whole else None


def more_agents_are_better(part: Part) -> Iterator[Row]:
    for method in METHODS:
        four, eight = (part.get(f"{method} beta=0.2,N={n}") for n in (4, 8))
        said = None
        if four is not None and eight is not None:
            said = (
                f"{verdict(eight.area(), four.area(), 1)} over the run, "
                f"{verdict(eight.final(), four.final(), 1)} at its end"
            )
        yield f"Figure 2: more agents are better ({method}, N = 8 against 4)", said
