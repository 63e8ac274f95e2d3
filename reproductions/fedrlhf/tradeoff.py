"""FedRLHF's trade-off by λ: personalization, intrinsic reward, accuracy, samples, and their rates.

Theorem 5.2 says that the mean personalization score grows like λ², the global performance J_g falls
linearly and the samples for a given performance grow linearly. Theorem 5.1 bounds J_g from below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from reproductions.fedqhd.numbers import prose, told

from fedrl.core.types import UserError
from fedrl.runs.grid import Trained
from fedrl.runs.read import Run
from reproductions.fedrlhf import figures
from reproductions.fedrlhf.rates import LARGE, Rate, Rates, TradeOff, rates
from reproductions.fedrlhf.results import OWN, Found, Results, by_client, curve
from reproductions.markdown import missing, number, table

P, P_HELD, RETURN = "personal/divergence", "personal/divergence_held", "eval/return"
COLUMNS = {
    "P": P,
    "J_g": RETURN,
    "own J⁰": "personal/return",
    "accuracy": "eval/accuracy",
    "own accuracy": OWN,
    "Spearman": "eval/spearman",
}
TITLE = "The trade-off by λ (Theorems 5.1 and 5.2)"


def of(found: Found, lam: float) -> Trained:
    return found[f"lam-{lam:g}"]


def seeds(found: Found) -> list[int]:
    """Those that every λ has to the end."""
    whole = [
        {seed for seed, run in one.runs.items() if max(run.rounds) >= one.cell.rounds}
        for one in found.values()
    ]
    return sorted(set.intersection(*whole)) if whole else []


def measured(results: Results) -> dict[str, np.ndarray]:
    """Columns [seeds, λ]: all but samples in the paper's last round; nothing if a λ is missing."""
    found, lams, end = results.parts["tradeoff"], results.scale.lams, results.scale.rounds
    common = seeds(found)
    if not common:
        return {}
    columns = {}
    for name, metric in COLUMNS.items():
        rows = []
        for lam in lams:
            rounds, values = curve(only(of(found, lam), common), metric)
            rows.append(values[:, list(rounds).index(end)])
        columns[name] = np.stack(rows, 1)
    columns["samples"] = np.array(
        [[steps(of(found, lam).runs[seed], target(found, seed)) for lam in lams] for seed in common]
    )
    return columns


def only(one: Trained, some: Sequence[int]) -> Trained:
    return Trained(one.cell, {seed: one.runs[seed] for seed in some})


# Samples


def target(found: Found, seed: int) -> float:
    """J_g half way from where runs of this seed begin to where λ = 0 ends."""
    run = of(found, 0.0).runs[seed]
    return (run.rounds[0][RETURN] + run.rounds[max(run.rounds)][RETURN]) / 2


def steps(run: Run, level: float) -> float:
    """Environment steps until J_g reaches the level; infinite if it never does.

    Between two rounds J_g is taken to change in proportion to steps.
    """
    before = (0.0, run.rounds[0][RETURN])
    for metrics in list(run.rounds.values())[1:]:
        now = metrics["env/steps"], metrics[RETURN]
        if now[1] >= level:
            share = (level - before[1]) / (now[1] - before[1]) if now[1] > before[1] else 0.0
            return before[0] + max(share, 0.0) * (now[0] - before[0])
        before = now
    return math.inf


# Rates


def excess(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """P above what it is without feedback: clients differ in R0 as well. [seeds, λ]"""
    return columns["P"] - columns["P"][:, :1]


def fitted(results: Results, columns: Mapping[str, np.ndarray]) -> Rates:
    """Exponents and slopes, a fit for every seed."""
    names = ("P", "J_g", "samples")
    return rates(
        TradeOff(seed, lam, *(float(columns[name][row, place]) for name in names))
        for row, seed in enumerate(seeds(results.parts["tradeoff"]))
        for place, lam in enumerate(results.scale.lams)
    )


def local(lams: Sequence[float], values: np.ndarray) -> list[float]:
    """Exponents between neighbouring λ > 0, of means over seeds; NaN next to one not above 0."""
    points = [(lam, float(p)) for lam, p in zip(lams, values.mean(0), strict=True) if lam > 0]
    return [
        math.log(after / before) / math.log(larger / lam) if min(before, after) > 0 else math.nan
        for (lam, before), (larger, after) in itertools.pairwise(points)
    ]


def rate(found: Rate, digits: int) -> str:
    if math.isnan(found.mean):
        return "nothing that can be fitted"
    return told((found.mean, found.half), digits)


def excess_of(found: Rate, lams: Sequence[float]) -> str:
    """Which λs the excess is fitted over, and which seeds are not."""
    used = ", ".join(f"{lam:g}" for lam in lams if lam >= LARGE)
    return (
        f"λ = {used}, without {found.left_out} of {len(found.by_seed)} seeds, where feedback adds "
        "nothing at one of these"
    )


def straightness(lams: Sequence[float], values: np.ndarray) -> float:
    """R² of the line through the means over seeds, where all of them are known."""
    known = np.isfinite(values).all(0)
    x, mean = np.array(lams)[known], values[:, known].mean(0)
    if len(x) < 3:
        return math.nan
    rest = mean - np.polyval(np.polyfit(x, mean, 1), x)
    spread = ((mean - mean.mean()) ** 2).sum()
    return float(1 - (rest**2).sum() / spread) if spread else 0.0


# Theorem 5.1


def slack(run: Run, lam: float) -> list[float]:
    """By round, J_g − (mean J⁰(π_k) − C mean √P_k): the theorem says that it is never negative.

    Clients measure P_k against the policy that they received, so J_g is the round before's. All
    three are over held-out movies, because a bound needs J and P over the same states. Steps are
    episodes (γ = 0), and R_max = H_max = 1: C = 2√2 (1 + λ).
    """
    found = []
    for now in sorted(run.rounds)[1:]:
        apart, own = by_client(run, P_HELD, now), by_client(run, "personal/return", now)
        if not apart:  # NaN would read as a bound that is broken
            raise UserError(f"{run.path} lacks {P_HELD}: remove this run and measure it again")
        bound = np.mean(list(own.values())) - 2 * math.sqrt(2) * (1 + lam) * np.mean(
            np.sqrt(list(apart.values()))
        )
        found.append(run.rounds[now - 1][RETURN] - float(bound))
    return found


def slacks(results: Results) -> list[float]:
    return [
        gap
        for lam in results.scale.lams
        for run in of(results.parts["tradeoff"], lam).runs.values()
        for gap in slack(run, lam)
    ]


# The section


def section(results: Results, pictures: Path) -> str:
    columns, scale = measured(results), results.scale
    if not columns:
        return missing(TITLE)
    lams = scale.lams
    rows = []
    for i, lam in enumerate(lams):
        values = {name: column[:, i] for name, column in columns.items()}
        rows.append([
            f"{lam:g}", number(values["P"]), number(excess(columns)[:, i]), number(values["J_g"]),
            number(values["own J⁰"]), number(100 * values["accuracy"], 1),
            number(100 * values["own accuracy"], 1), number(values["Spearman"], 2),
            told_steps(values["samples"]),
        ])  # fmt: skip
    head = ("λ", "P", "P − P(0)", "J_g", "mean J⁰ of own policies", "accuracy, %",
            "own accuracy, %", "Spearman", "steps to the target")  # fmt: skip
    found, straight = fitted(results, columns), straightness(lams, columns["J_g"])
    gaps = slacks(results)
    text = f"""K = {scale.clients[0]}, {len(columns["P"])} seeds; after round {scale.rounds}, but
        for the last column, which is of runs of {scale.long} rounds. P is the mean over clients of
        KL(π_k ‖ π) over all movies on the client's shelf, π the policy that it received. J_g is the
        global policy's expected intrinsic reward on held-out movies, J⁰ the clients' own
        policies'. *Steps to the target*: environment steps of all clients until J_g is half way
        from its beginning to where λ = 0 ends, infinite where {scale.long} rounds are too few.

        Clients differ without any feedback, too: P does not begin at 0. So its exponent is given
        for P as it is, {rate(found.exponent, 2)}, and for what feedback adds,
        {rate(found.excess, 2)} (log-log slopes by seed; the theorem's rate is 2). The first is over
        all λ > 0, the second over {excess_of(found.excess, lams)}. From one λ to the next, the
        means of what feedback adds have exponents of
        {", ".join("none" if math.isnan(a) else f"{a:.1f}" for a in local(lams, excess(columns)))}.
        J_g changes by
        {rate(found.performance, 4)} per unit of λ, and a straight line explains
        {100 * straight:.0f}% of the mean's differences. Theorem 5.1's
        lower bound on J_g, with γ = 0, R_max = H_max = 1 and P over held-out movies, is kept in
        {sum(gap >= 0 for gap in gaps):,} of {len(gaps):,} rounds; J_g lies {np.mean(gaps):.2f}
        above it in the mean, and is itself within ±{np.abs(columns["J_g"]).max():.2f}."""
    image = figures.tradeoff(lams, columns, excess(columns), pictures)
    return "\n\n".join([f"## {TITLE}", prose(text), table(head, rows), image])


def told_steps(samples: np.ndarray) -> str:
    known = samples[np.isfinite(samples)]
    if not len(known):
        return "never"
    text = number(known, 0)
    return text if len(known) == len(samples) else f"{text} ({len(known)} of {len(samples)} seeds)"
