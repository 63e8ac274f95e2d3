"""How far several people agree: shares of equal answers, and Krippendorff's α.

    α = 1 − D_o / D_e

D_o is the mean squared difference of two answers to one query, D_e that of any two answers: 1 is
full agreement, 0 is what chance gives, less is systematic disagreement (Krippendorff, "Content
analysis", 2004, for interval data). Queries that fewer than two people answered do not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

Answers = Mapping[str, Mapping[str, float]]
"""By query and person."""


class Agreement(NamedTuple):
    """`queries` were answered by two people at least; None where there are none, or no spread."""

    queries: int
    equal: float | None  # of pairs of answers to one query
    alpha: float | None


def agreement(answers: Answers) -> Agreement:
    units = [list(values.values()) for values in answers.values() if len(values) > 1]
    if not units:
        return Agreement(0, None, None)
    pairs = [pair for unit in units for pair in itertools.combinations(unit, 2)]
    equal = float(np.mean([first == second for first, second in pairs]))
    return Agreement(len(units), equal, krippendorff_alpha(units))


def krippendorff_alpha(units: Sequence[Sequence[float]]) -> float | None:
    """Of interval data; None where all say the same, so that chance would agree as well."""
    told = [np.asarray(unit, np.float64) for unit in units if len(unit) > 1]
    values = np.concatenate(told) if told else np.zeros(0)
    if len(values) == 0 or np.ptp(values) == 0:
        return None
    within = sum(_squares(unit) / (len(unit) - 1) for unit in told)
    return float(1 - within * (len(values) - 1) / _squares(values))


def _squares(values: np.ndarray) -> float:
    """Σ over ordered pairs of (x − y)²."""
    return float(2 * len(values) * (values**2).sum() - 2 * values.sum() ** 2)


def pairwise(answers: Answers) -> dict[tuple[str, str], tuple[int, int]]:
    """Of every two people: queries that both answered, and to how many they said the same."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for values in answers.values():
        for one, other in itertools.combinations(sorted(values), 2):
            both, same = found.get((one, other), (0, 0))
            found[one, other] = both + 1, same + (values[one] == values[other])
    return found


def disputed(answers: Answers, most: int) -> list[str]:
    """Queries whose answers lie apart, the farthest first."""
    spread = {name: max(v.values()) - min(v.values()) for name, v in answers.items() if len(v) > 1}
    apart = [name for name, width in spread.items() if width > 0]
    return sorted(apart, key=lambda name: -spread[name])[:most]
