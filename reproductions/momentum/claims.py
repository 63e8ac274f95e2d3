"""The momentum paper's claims and what became of them, decided by the measured numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedrl.report import plots
from reproductions.markdown import table, verdict
from reproductions.momentum.cells import LEARNERS, learner_name
from reproductions.seed_cells import Measured

Found = Mapping[str, Measured]
Row = tuple[str, str]
TITLES = {"cartpole": "CartPole", "halfcheetah": "HalfCheetah", "walker2d": "Walker2d"}


def claims(parts: Mapping[str, Found]) -> str:
    rows: list[Row] = []
    if found := parts.get("table2"):
        rows += [small_beta_wins(found), flat_in_kappa(found)]
    if found := parts.get("regimes"):
        rows.append(variance_reduction_helps(found))
    for key, title in TITLES.items():
        if found := parts.get(f"figure1_{key}"):
            rows += momentum_wins(found, title)
    if found := parts.get("equal_step"):
        rows += momentum_wins(found, "CartPole, one small step size, before convergence")
    if found := parts.get("figure2"):
        rows += more_agents_are_better(found)
    return "## The claims\n\n" + table(("the paper says", "here"), rows) if rows else ""


def small_beta_wins(found: Found) -> Row:
    smallest = betas(found)[0]
    cells = [(found[f"beta={smallest},kappa={k}"], found[f"beta=1.0,kappa={k}"])
             for k in kappas(found)]  # fmt: skip
    gaps = [plots.interval(one.final() - base.final()) for one, base in cells]
    always = all(float(gap - half) > 0 for gap, half in gaps)
    weight = np.median([one.curves["train/weight_mean"][:, -1] for one, _ in cells])
    return (
        "Table 2: a small β beats β = 1",
        f"**{'holds' if always else 'does not hold'}** at the paper's settings: β = {smallest} is "
        f"{np.mean([gap for gap, _ in gaps]):.2f} above β = 1 on average. But not by variance "
        f"reduction: the importance weight is {weight:.1g} in the last round (median), and what "
        "is left is heavy-ball momentum: PAvg with a larger server step does as well (see *Why*)",
    )


def flat_in_kappa(found: Found) -> Row:
    moves = []
    for beta in betas(found):
        first, *others = (found[f"beta={beta},kappa={k}"].final() for k in kappas(found))
        moves += [plots.interval(other - first) for other in others]
    flat = all(abs(float(move)) <= max(float(half), 0.1) for move, half in moves)
    largest = max(abs(float(move)) for move, _ in moves)
    return (
        "Table 2: flat in κ",
        f"**{'holds' if flat else 'does not hold'}**: the largest move of a row away from κ = 0 is "
        f"{largest:.3f}",
    )


def variance_reduction_helps(found: Found) -> Row:
    mine = {n: one for n, one in found.items() if n.startswith("direct,uniform,")}
    base = mine["direct,uniform,beta=1.0"]
    best = max((one for one in mine.values() if one is not base), key=lambda x: x.final().mean())
    weight = best.overall("train/weight_mean").mean()
    return (
        "The variance reduction itself helps",
        f"in a regime: direct parametrisation, H = 5, small steps, mean weight {weight:.2f}: "
        f"{best.cell.name.rpartition(',')[2].replace('beta=', 'β = ')} against β = 1: "
        f"**{verdict(best.final(), base.final())}**",
    )


def momentum_wins(found: Found, title: str) -> Iterator[Row]:
    base = found["pavg"]
    for method in ("fedsvrpg-m", "fedhapg-m"):
        parts = [
            f"β = {beta}: {verdict(one.area(), base.area(), 1)} over the run, "
            f"{verdict(one.final(), base.final(), 1)} at its end"
            for name, beta in LEARNERS
            if name == method and (one := found.get(learner_name(name, beta)))
        ]
        yield f"{title}: some β < 1 beats PAvg ({method})", "; ".join(parts)


def more_agents_are_better(found: Found) -> Iterator[Row]:
    for method in ("fedsvrpg-m", "fedhapg-m"):
        four, eight = (found[f"{method} β=0.2,N={n}"] for n in (4, 8))
        yield (
            f"Figure 2: more agents are better ({method}, N = 8 against 4)",
            f"{verdict(eight.area(), four.area(), 1)} over the run, "
            f"{verdict(eight.final(), four.final(), 1)} at its end",
        )


def betas(found: Found) -> list[float]:
    return sorted({float(n.split("beta=")[1].split(",")[0]) for n in found})


def kappas(found: Found) -> list[float]:
    return sorted({float(n.split("kappa=")[1]) for n in found})
