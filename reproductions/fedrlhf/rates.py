"""Theorem 5.2 as fits: how P, J_g and the samples that a target takes change with λ.

The theorem predicts that the personalization score P grows like λ², that the global performance
J_g falls linearly, and that the samples grow linearly. All three are upper rates, for a small λ,
and P is one of clients that start at the same policy. In a run clients' policies differ already
without feedback, so beside the exponent of P stands that of the excess P(λ) − P(0). A small λ adds
so little that noise decides its sign, and to leave out what is not above 0 would keep the lucky
half. So the excess is fitted over λ ≥ 0.5 only, and a seed with one that is not above 0 even there
has no fit: it is counted.

Each seed gives a fit of its own, by least squares; the interval is over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.report.plots import interval

LARGE = 0.5
"""The smallest λ whose excess is fitted."""


class TradeOff(NamedTuple):
    """One run: what it came to with its λ. `samples` is NaN where the target was not reached."""

    seed: int
    lam: float
    personalization: float  # P
    performance: float  # J_g
    samples: float


class Rate(NamedTuple):
    """`mean` over seeds ± `half`, a 95% t interval. A seed without a fit is NaN in `by_seed`."""

    mean: float
    half: float
    by_seed: dict[int, float]

    @property
    def left_out(self) -> int:
        """Seeds without a fit."""
        return sum(map(math.isnan, self.by_seed.values()))


class Rates(NamedTuple):
    exponent: Rate  # of P ~ λ^a, over λ > 0; predicted: 2
    excess: Rate  # of P(λ) − P(0) ~ λ^a, over λ ≥ LARGE and seeds with a fit; predicted: 2
    performance: Rate  # of J_g by λ; predicted: below 0
    samples: Rate  # by λ, over λ that reached the target, NaN if a seed has no fit; above 0


def rates(rows: Iterable[TradeOff]) -> Rates:
    seeds: dict[int, list[TradeOff]] = {}
    for row in rows:
        seeds.setdefault(row.seed, []).append(row)
    return Rates(
        _over({seed: _exponent(of) for seed, of in seeds.items()}),
        _over_fitted({seed: _exponent(of, _without(of), LARGE) for seed, of in seeds.items()}),
        _over({s: _slope([(row.lam, row.performance) for row in of]) for s, of in seeds.items()}),
        _over({s: _slope([(row.lam, row.samples) for row in of]) for s, of in seeds.items()}),
    )


def _over(by_seed: dict[int, float]) -> Rate:
    mean, half = interval(list(by_seed.values())) if by_seed else (math.nan, math.nan)
    return Rate(float(mean), float(half), by_seed)


def _over_fitted(by_seed: dict[int, float]) -> Rate:
    known = {seed: slope for seed, slope in by_seed.items() if not math.isnan(slope)}
    return _over(known)._replace(by_seed=by_seed)


def _without(rows: Sequence[TradeOff]) -> float:
    """P(0); NaN if no run is without feedback."""
    found = [row.personalization for row in rows if row.lam == 0]
    return float(np.mean(found)) if found else math.nan


def _exponent(rows: Sequence[TradeOff], floor: float = 0.0, least: float = 0.0) -> float:
    """Of P − floor, over λ > 0 from `least` on; NaN where one is not above 0."""
    above = [(row.lam, row.personalization - floor) for row in rows if row.lam >= least]
    points = [(lam, p) for lam, p in above if lam > 0]
    if not all(p > 0 for _, p in points):
        return math.nan
    return _slope([(math.log(lam), math.log(p)) for lam, p in points])


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of a line through the finite ones; NaN if they have fewer than two places."""
    finite = [point for point in points if all(map(math.isfinite, point))]
    if len({x for x, _ in finite}) < 2:
        return math.nan
    x, y = np.array(finite).T
    return float(np.polyfit(x, y, 1)[0])
