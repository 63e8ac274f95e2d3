"""Numbers with their intervals, and the rules by which claims are judged.

What was not measured is None, and so is everything that follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from fedrl.core.number_format import duration
from fedrl.report import plots

Samples = np.ndarray | None
BySeed = Mapping[int, float]
Difference = tuple[float, float]
"""A mean difference and the half width of its 95% interval; NaN for one seed."""

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"


def number(samples: Samples, digits: int = 3) -> str | None:
    """The mean with its 95% t-interval over samples; one sample has none."""
    if samples is None or not len(samples):
        return None
    mean, half = plots.interval(samples)
    return with_half(float(mean), float(half), digits)


def with_half(mean: float, half: float, digits: int) -> str:
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if np.isfinite(half) else "")


def verdict(ours: Samples, base: Samples, digits: int = 2) -> str | None:
    """Better or worse than the baseline, by the 95% interval of paired differences.

    An interval with 0 in it decides nothing: that there is no difference would need a narrow one.
    """
    if ours is None or base is None or not len(ours):
        return None
    gap, half = (float(x) for x in plots.interval(ours - base))
    if not np.isfinite(half):
        return f"{gap:+.{digits}f} (one seed)"
    word = "better" if gap - half > 0 else "worse" if gap + half < 0 else "undecided"
    return f"{word} ({gap:+.{digits}f} ± {half:.{digits}f})"


# By seed


def values(by_seed: BySeed, factor: float = 1.0) -> Samples:
    """As samples; None if there are none."""
    return factor * np.array(list(by_seed.values())) if by_seed else None


def paired(ours: BySeed, base: BySeed, factor: float = 1.0) -> tuple[Samples, Samples]:
    """Both over the seeds that both have."""
    seeds = sorted(set(ours) & set(base))
    if not seeds:
        return None, None
    a, b = (factor * np.array([one[seed] for seed in seeds]) for one in (ours, base))
    return a, b


def gap(ours: BySeed, base: BySeed, factor: float = 1.0) -> Difference | None:
    """The mean difference over common seeds and the half width of its interval."""
    a, b = paired(ours, base, factor)
    if a is None or b is None:
        return None
    mean, half = plots.interval(a - b)
    return float(mean), float(half)


def signed(difference: Difference, digits: int = 1) -> str:
    mean, half = difference
    if half != half:
        return f"{mean:+.{digits}f} (one seed)"
    return f"{mean:+.{digits}f} ± {half:.{digits}f}"


def mean_of(several: Sequence[BySeed]) -> dict[int, float]:
    """By seed, the mean of these; only seeds that all of them have."""
    seeds = set.intersection(*(set(one) for one in several)) if several else set()
    return {seed: float(np.mean([one[seed] for one in several])) for seed in sorted(seeds)}


# Rules. One seed has no interval, so that nothing follows from it.


def above(difference: Difference) -> str:
    """Better than: the whole interval lies on one side of 0."""
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < 0 else OPEN


def not_below(difference: Difference, margin: float) -> str:
    """No worse than: the whole interval lies on one side of −margin."""
    mean, half = difference
    return HOLDS if mean - half > -margin else FAILS if mean + half < -margin else OPEN


def alike(difference: Difference, margin: float) -> str:
    """The same: the whole interval within ± margin, or the whole of it outside."""
    mean, half = difference
    if abs(mean) + half < margin:
        return HOLDS
    return FAILS if abs(mean) - half > margin else OPEN


def together(verdicts: Sequence[str]) -> str:
    """A claim of several parts holds if all do, and fails if one does."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if set(verdicts) == {HOLDS} else OPEN


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


# What would decide


def in_words(
    word: str, difference: Difference, seeds: int, planned: int, each: float = 0.0,
    margin: float = 0.0, digits: int = 1, within: bool = False,
) -> str:  # fmt: skip
    """The verdict with its interval, and of how many seeds if not of all that were planned; where
    there is none, how many would bring one if mean and deviation stay what they are, and what they
    cost if one takes `each` seconds. The difference counts from the margin on, or it is to be
    `within` the margin."""
    mean = difference[0]
    far = abs(margin - abs(mean)) if within else max(abs(mean), margin - mean)
    return f"**{word}** ({in_numbers(word, difference, seeds, planned, far, each, digits)})"


def in_numbers(
    word: str, difference: Difference, seeds: int, planned: int, far: float, each: float = 0.0,
    digits: int = 1,
) -> str:  # fmt: skip
    """The same without the verdict, which there is once the interval is narrower than `far`."""
    half = difference[1]
    more = f"; {seeds} of {planned} seeds" if 1 < seeds < planned else ""
    if word == OPEN and half == half:
        more += f"; {would_decide(half, seeds, far, each)}"
    return f"{signed(difference, digits)}{more}"


def would_decide(half: float, seeds: int, wanted: float, each: float, what: str = "") -> str:
    """So many seeds, and the time of those that are missing at `each` seconds."""
    needed = enough(half, seeds, max(wanted, 1e-9))
    if needed > NEAR * seeds:
        return f"so near the line that {NEAR} times these seeds would not decide"
    cost = (needed - seeds) * each
    unit = f" {what}" if what else ""
    return f"{needed:,}{unit} would decide" + (f", {duration(cost)} more" if cost else "")


NEAR = 100
"""Times the seeds that there are, beyond which a count of them says only that the line is near."""
MOST = 100_000
"""Seeds beyond which nobody counts."""


def enough(half: float, seeds: int, wanted: float) -> int:
    """Seeds whose interval is narrower than wanted on either side."""
    deviation = half * math.sqrt(seeds) / quantile(seeds)
    few, many = seeds + 1, seeds + 2
    while many < MOST and quantile(many) * deviation / math.sqrt(many) >= wanted:
        few, many = many, 2 * many
    while few < many:
        middle = (few + many) // 2
        if quantile(middle) * deviation / math.sqrt(middle) < wanted:
            many = middle
        else:
            few = middle + 1
    return few


def quantile(seeds: int) -> float:
    return float(stats.t.ppf(0.975, seeds - 1))
