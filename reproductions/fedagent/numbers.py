"""Success by seed: shown in percent, compared seed by seed, judged by a stated rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedrl.report import plots
from reproductions.markdown import number, verdict

BySeed = Mapping[int, float]

MARGIN = 5.0
"""Percentage points: what counts as no worse, or as the same."""
HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"


def shown(values: BySeed) -> str:
    """Percent with the interval over seeds."""
    return number(100 * np.array(list(values.values())), 1) if values else "missing"


def compared(ours: BySeed, base: BySeed) -> str:
    """Better, worse or undecided, in percentage points over common seeds."""
    a, b = paired(ours, base)
    return verdict(a, b, 1) if len(a) else "missing"


def paired(ours: BySeed, base: BySeed) -> tuple[np.ndarray, np.ndarray]:
    seeds = sorted(set(ours) & set(base))
    return (
        100 * np.array([ours[seed] for seed in seeds]),
        100 * np.array([base[seed] for seed in seeds]),
    )


def mean_of(several: Sequence[BySeed]) -> dict[int, float]:
    """By seed, the mean of these; only seeds that all of them have."""
    seeds = set.intersection(*(set(one) for one in several)) if several else set()
    return {seed: float(np.mean([one[seed] for one in several])) for seed in sorted(seeds)}


def gap(ours: BySeed, base: BySeed) -> tuple[float, float] | None:
    """The mean paired difference in percentage points and the half width of its interval."""
    a, b = paired(ours, base)
    if not len(a):
        return None
    mean, half = plots.interval(a - b)
    return float(mean), float(half)


# Rules. One seed has no interval, so that nothing follows from it.


def above(difference: tuple[float, float]) -> str:
    """Better than: the whole interval lies on one side of 0."""
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < 0 else OPEN


def not_below(difference: tuple[float, float]) -> str:
    """No worse than: the whole interval lies on one side of −MARGIN."""
    mean, half = difference
    return HOLDS if mean - half > -MARGIN else FAILS if mean + half < -MARGIN else OPEN


def alike(difference: tuple[float, float]) -> str:
    """The same: the whole interval within ± MARGIN, or the whole of it outside."""
    mean, half = difference
    if abs(mean) + half < MARGIN:
        return HOLDS
    return FAILS if abs(mean) - half > MARGIN else OPEN


def together(verdicts: Sequence[str]) -> str:
    """A claim of several parts holds if all do, and fails if one does."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if set(verdicts) == {HOLDS} else OPEN
