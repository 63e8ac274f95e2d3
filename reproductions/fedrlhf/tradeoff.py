"""FedRLHF's trade-off by λ: personalization, intrinsic reward, accuracy, samples, and their rates.

Theorem 5.2 says that the mean personalization score grows like λ², the global performance J_g falls
linearly and the samples for a given performance grow linearly. Theorem 5.1 bounds J_g from below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedrl.core.types import UserError
from fedrl.runs.read import Run
from reproductions.fedrlhf.rates import LARGE, Rate, Rates, TradeOff, rates
from reproductions.fedrlhf.results import OWN, Found, Results, by_client, value
from reproductions.verdicts import number, signed

P, P_HELD, RETURN = "personal/divergence", "personal/divergence_held", "eval/return"
COLUMNS = {
    "P": P,
    "J_g": RETURN,
    "own J⁰": "personal/return",
    "accuracy": "eval/accuracy",
    "own accuracy": OWN,
    "Spearman": "eval/spearman",
}
Columns = Mapping[str, np.ndarray]
"""[seeds, λ]"""


def seeds(found: Found) -> list[int]:
    """Those that every λ has to the end."""
    whole = [
        {seed for seed, run in one.runs.items() if max(run.rounds) >= one.cell.rounds}
        for one in found.values()
    ]
    return sorted(set.intersection(*whole)) if whole else []


def measured(results: Results) -> Columns:
    """All but samples in the paper's last round; nothing if a λ is missing."""
    found = results.parts["tradeoff"]
    common = seeds(found)
    if not common:
        return {}
    columns = {
        name: np.array([
            [value(one.runs[seed].rounds[results.rounds], metric) for one in found.values()]
            for seed in common
        ])
        for name, metric in COLUMNS.items()
    }  # fmt: skip
    reached = [[steps(one.runs[seed], target(found, seed)) for one in found.values()]
               for seed in common]  # fmt: skip
    return columns | {"samples": np.array(reached)}


# Samples


def target(found: Found, seed: int) -> float:
    """J_g half way from where runs of this seed begin to where λ = 0 ends."""
    run = found["lam-0"].runs[seed]
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


def excess(columns: Columns) -> np.ndarray:
    """P above what it is without feedback: clients differ in R0 as well. [seeds, λ]"""
    return columns["P"] - columns["P"][:, :1]


def fitted(results: Results, columns: Columns) -> Rates:
    """Exponents and slopes, a fit for every seed."""
    names = ("P", "J_g", "samples")
    return rates(
        TradeOff(seed, lam, *(float(columns[name][row, place]) for name in names))
        for row, seed in enumerate(seeds(results.parts["tradeoff"]))
        for place, lam in enumerate(results.lams)
    )


def local(lams: Sequence[float], values: np.ndarray) -> list[float]:
    """Exponents between neighbouring λ > 0, of means over seeds; NaN next to one not above 0."""
    points = [(lam, float(p)) for lam, p in zip(lams, values.mean(0), strict=True) if lam > 0]
    return [
        math.log(after / before) / math.log(larger / lam) if min(before, after) > 0 else math.nan
        for (lam, before), (larger, after) in itertools.pairwise(points)
    ]


def shown_rate(rate: Rate, digits: int) -> str:
    if math.isnan(rate.mean):
        return "nothing that can be fitted"
    return signed((rate.mean, rate.half), digits)


def fitted_over(rate: Rate, lams: Sequence[float]) -> str:
    """Which λs the excess is fitted over, and which seeds are not."""
    used = "λ = " + ", ".join(f"{lam:g}" for lam in lams if lam >= LARGE)
    if not rate.left_out:
        return used
    seeds = f"{rate.left_out} of {len(rate.by_seed)} seeds"
    return f"{used}, without {seeds}, where feedback adds nothing at one of these"


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
        for lam, one in zip(results.lams, results.parts["tradeoff"].values(), strict=True)
        for run in one.runs.values()
        for gap in slack(run, lam)
    ]


# As the page shows them


def row(columns: Columns, place: int) -> list[str | None]:
    """The measured columns of one λ."""
    values = {name: column[:, place] for name, column in columns.items()}
    return [
        number(values["P"]), number(excess(columns)[:, place]), number(values["J_g"]),
        number(values["own J⁰"]), number(100 * values["accuracy"], 1),
        number(100 * values["own accuracy"], 1), number(values["Spearman"], 2),
        shown_steps(values["samples"]),
    ]  # fmt: skip


def shown_steps(samples: np.ndarray) -> str:
    known = samples[np.isfinite(samples)]
    text = number(known, 0)
    if text is None:
        return "never"
    return text if len(known) == len(samples) else f"{text} ({len(known)} of {len(samples)} seeds)"


def told_rates(results: Results, columns: Columns) -> str:
    """The exponents and slopes, in words."""
    found, lams, gaps = fitted(results, columns), results.lams, slacks(results)
    between = ("none" if math.isnan(a) else f"{a:.1f}" for a in local(lams, excess(columns)))
    return f"""So its exponent is given for P as it is, {shown_rate(found.exponent, 2)}, and for
        what feedback adds, {shown_rate(found.excess, 2)} (log-log slopes by seed; the theorem's
        rate is 2). The first is over all λ > 0, the second over {fitted_over(found.excess, lams)}.
        From one λ to the next, the means of what feedback adds have exponents of
        {", ".join(between)}. J_g changes by {shown_rate(found.performance, 4)} per unit of λ, and a
        straight line explains {100 * straightness(lams, columns["J_g"]):.0f}% of the mean's
        differences. Theorem 5.1's lower bound on J_g, with γ = 0, R_max = H_max = 1 and P over
        held-out movies, is kept in {sum(gap >= 0 for gap in gaps):,} of {len(gaps):,} rounds; J_g
        lies {np.mean(gaps):.2f} above it in the mean, and is itself within
        ±{np.abs(columns["J_g"]).max():.2f}."""
