"""By which rule a claim of the momentum paper is judged, and in which words.

`verdicts.toml` has rules, margins and numbers of seeds. What was not measured is None.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from fedrl.report import plots
from reproductions.momentum.parts import Part
from reproductions.statements import NOT_JUDGED
from reproductions.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    Difference,
    above,
    alike,
    in_words,
    quantile,
    signed,
    together,
    would_decide,
)

RULES = tomllib.loads((Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8"))
RESAMPLES = 10_000
OVER = {"final": "at the end", "area": "over the run"}


def is_better(difference: Difference, margin: float) -> str:
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < margin else OPEN


def difference(part: Part, ours: str, base: str, over: str) -> tuple[Difference, int] | None:
    """The paired difference of two rows, and of how many seeds."""
    a, b = part.pair(ours, base, over)
    if a is None or b is None:
        return None
    mean, half = plots.interval(a - b)
    return (float(mean), float(half)), len(a)


def seconds_of(part: Part, names: Sequence[str]) -> float:
    """What one more seed of these rows costs."""
    found = [one for name in names if (one := part.get(name))]
    return sum(one.seconds / max(len(one.finals()), 1) for one in found)


def better(
    part: Part, ours: str, base: str, margin: float, planned: int, over: str = "area",
    digits: int = 1,
) -> str | None:  # fmt: skip
    found = difference(part, ours, base, over)
    if found is None:
        return None
    told, seeds = found
    word = where_learned(part, (ours, base), over, told, is_better(told, margin))
    if word == NOT_JUDGED:
        start, *ends = (f"{level:.1f}" for level in levels_of(part, (ours, base), over))
        return (
            f"{NOT_JUDGED} ({signed(told, digits)}): neither has learned anything, "
            f"{start} at the beginning, {' and '.join(ends)} {OVER[over]}"
        )
    each = seconds_of(part, (ours, base))
    return in_words(word, told, seeds, planned, each, margin, digits)


# Whether anything was learned


def change(part: Part, name: str, over: str) -> Difference | None:
    """What training changed of a row's mean return, with both intervals."""
    samples = part.final(name) if over == "final" else part.area(name)
    if samples is None:
        return None
    mean, half = plots.interval(samples)
    _, means, halves = part.found[name].band()
    return float(mean - means[0]), float(np.hypot(half, halves[0]))


def may_have_learned(part: Part, name: str, over: str) -> bool:
    """Above its own beginning; one seed cannot tell."""
    found = change(part, name, over)
    return found is not None and (above(found) == HOLDS or found[1] != found[1])


def where_learned(part: Part, pair: Sequence[str], over: str, told: Difference, word: str) -> str:
    """Where neither side has learned anything nothing is judged; only below one that kept its
    level a side is no better there, too."""
    if any(may_have_learned(part, name, over) for name in pair):
        return word
    base = change(part, pair[1], over)
    kept = base is not None and above(base) != FAILS
    return FAILS if kept and above(told) == FAILS else NOT_JUDGED


def levels_of(part: Part, names: Sequence[str], over: str) -> list[float]:
    """The mean return before training, and that of each row at the end or over the run."""
    ends = (part.final(name) if over == "final" else part.area(name) for name in names)
    start = float(part.found[names[0]].band()[1][0])
    return [start, *(float(np.mean(end)) for end in ends if end is not None)]


def no_difference(
    part: Part, ours: str, base: str, margin: float, planned: int, over: str = "final",
    digits: int = 2,
) -> str | None:  # fmt: skip
    found = difference(part, ours, base, over)
    if found is None:
        return None
    told, seeds = found
    word = alike(told, margin) if told[1] == told[1] else OPEN
    mean, half = told
    more = f"; {seeds} of {planned} seeds" if 1 < seeds < planned else ""
    if word == OPEN and half == half:
        each = seconds_of(part, (ours, base))
        more += f"; {would_decide(half, seeds, abs(margin - abs(mean)), each)}"
    return f"**{word}** ({mean:+.{digits}f} ± {half:.{digits}f}{more})"


def some(
    part: Part, ours: Mapping[str, str], base: str, margin: float, planned: int, over: str
) -> str | None:
    """One of several rows is better: intervals so wide that one of them errs by chance in 5%."""
    words, told = [], []
    for label, name in ours.items():
        found = difference(part, name, base, over)
        if found is None:
            return None
        (mean, half), seeds = found
        wide = stats.t.ppf(1 - 0.025 / len(ours), seeds - 1) / quantile(seeds) if seeds > 1 else 1.0
        one = (mean, half * float(wide))
        words.append(where_learned(part, (name, base), over, one, is_better(one, margin)))
        told.append(f"{label}: {mean:+.1f} ± {one[1]:.1f}")
        if words[-1] == OPEN and half == half:
            each = seconds_of(part, (name, base))
            far = max(abs(mean), margin - mean)
            told[-1] += f", {would_decide(one[1], seeds, far, each, 'seeds')}"
    fewer = f"; {seeds} of {planned} seeds" if seeds < planned else ""
    numbers = f"({'; '.join(told)}{fewer})"
    if NOT_JUDGED in words and HOLDS not in words:
        return f"{NOT_JUDGED} {numbers}: in some neither has learned anything"
    word = HOLDS if HOLDS in words else FAILS if set(words) == {FAILS} else OPEN
    return f"**{word}** {numbers}"


# Deviations


def less_variance(part: Part, pairs: Mapping[str, tuple[str, str]], planned: int) -> str | None:
    """Ratio of deviations over seeds for every β, by resampling seeds; all are to be below 1."""
    rows = []
    for names in pairs.values():
        a, b = part.pair(*names)
        if a is None or b is None:
            return None
        rows.append((a, b))
    fewest = min(len(a) for a, _ in rows)
    if fewest < 2:
        return f"**{OPEN}** (one seed)"
    ours, base = (np.stack([one[i][:fewest] for one in rows]) for i in (0, 1))
    picks = np.random.default_rng(0).integers(fewest, size=(RESAMPLES, fewest))
    drawn = log_ratio(ours[:, picks], base[:, picks])
    words, told = [], []
    for (label, names), middle, some in zip(
        pairs.items(), log_ratio(ours, base), drawn, strict=True
    ):
        low, high = np.quantile(some, [0.025, 0.975])
        words.append(HOLDS if high < 0 else FAILS if low > 0 else OPEN)
        ratio, left, right = np.exp([middle, low, high])
        line = f"β = {label}: ratio {ratio:.2f}, {left:.2f} to {right:.2f}"
        if words[-1] == OPEN:
            each, half = seconds_of(part, names), float(high - low) / 2
            line += f", {would_decide(half, fewest, max(abs(middle), 1e-3), each, 'seeds')}"
        told.append(line)
    more = f"; {fewest} of {planned} seeds" if fewest < planned else ""
    numbers = f"({'; '.join(told)}{more})"
    if not any(may_have_learned(part, name, "final") for names in pairs.values() for name in names):
        return f"{NOT_JUDGED} {numbers}: nobody has learned anything"
    return f"**{together(words)}** {numbers}"


def log_ratio(ours: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Of deviations along the last axis."""
    a, b = (np.maximum(x.std(-1, ddof=1), 1e-6) for x in (ours, base))
    return np.asarray(np.log(a / b))


# Slopes


def slope_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log-log slopes of y [..., points] against x [points]."""
    at = np.log(x) - np.log(x).mean()
    found: np.ndarray = (np.log(y) @ at) / (at @ at)
    return found


def slope_of_means(x: np.ndarray, mean: np.ndarray, half: np.ndarray) -> Difference:
    """The log-log slope of means that have intervals of their own, with its interval."""
    at = np.log(x) - np.log(x).mean()
    return float(slope_of(x, mean)), float(np.sqrt(((at / (at @ at) * half / mean) ** 2).sum()))


def below(told: Difference, bound: float) -> str:
    mean, half = told
    return HOLDS if mean + half < bound else FAILS if mean - half > bound else OPEN


def bootstrapped(values: np.ndarray, draw: np.ndarray) -> Difference:
    """A number and half of the 95% interval of its resamples."""
    low, high = np.quantile(draw, [0.025, 0.975])
    return float(values), float(high - low) / 2
