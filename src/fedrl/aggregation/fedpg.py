"""FedPG-Aggregate: the gradients that lie together, if more than half of them do.

Paper: Fan et al. 2021 (FedPG-BR), Algorithm 1.1. Gradients x_1 … x_n of B trajectories each, whose
deviation from their mean is bounded by σ, are with probability 1 − δ all within σ √(V/B) of it,
V = 2 log(2n/δ). So for a distance d, first 2σ √(V/B) and then, should it keep fewer than (1 − α) n
of them, 2σ, which holds for every honest gradient:

    medians    those with more than n/2 within d, themselves included
    centre     the median that is nearest to the medians' mean
    kept       those within d of the centre

The result is the mean of those kept. Fewer than half liars can pull it by a few d at most, and only
from within. Where no gradient has half of the others around it, none can be told from a lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrl.aggregation.rule import Updates, as_update, rule, vectors
from fedrl.core.limits import above_zero, at_least_one
from fedrl.core.types import Tensors, TooFew, UserError, Word


@dataclass(frozen=True)
class FedPGSettings:
    """FedPG-BR's filter of gradients."""

    name: Word = "fedpg-br"
    # σ: how far the gradient of one trajectory may lie from its mean.
    sigma: float = 1.0
    # B: trajectories of each gradient.
    batch: int = 16
    # δ: chance that honest gradients are further apart than the filter expects.
    delta: float = 0.6
    # α: share of clients that are assumed to lie, below a half.
    alpha: float = 0.3

    def __post_init__(self) -> None:
        above_zero(self, "aggregate.", "sigma")
        at_least_one(self, "aggregate.", "batch")
        if not 0 < self.delta < 1:
            raise UserError(f"aggregate.delta is {self.delta}; it must lie in (0, 1)")
        if not 0 <= self.alpha < 0.5:
            raise UserError(f"aggregate.alpha is {self.alpha}; it must lie in [0, 0.5)")


@rule("fedpg-br", Settings=FedPGSettings, least=3, by_number=False)
def fedpg_br(updates: Updates, sigma: float, batch: int, delta: float, alpha: float) -> Tensors:
    """The mean of the gradients that lie together, if more than half of them do."""
    middle = fedpg_aggregate(list(vectors(updates)), sigma, batch, delta, alpha)
    return as_update(middle, updates[0][0])


def fedpg_aggregate(
    updates: Sequence[np.ndarray], sigma: float, batch: int, delta: float, alpha: float
) -> np.ndarray:
    """The mean of the flat gradients that the filter keeps; σ, B, δ and α as above."""
    x = np.stack(updates, dtype=np.float64)
    return np.asarray(x[kept(x, sigma, batch, delta, alpha)].mean(0))


def kept(x: np.ndarray, sigma: float, batch: int, delta: float, alpha: float) -> np.ndarray:
    """Which of the gradients [n, d] are used [n]; `TooFew` if none can be trusted."""
    count = len(x)
    concentrated = 2 * sigma * math.sqrt(2 * math.log(2 * count / delta) / batch)
    apart = np.stack([_lengths(x - row) for row in x])
    for within in (concentrated, 2 * sigma):
        together = _together(x, apart, within)
        # rounding errors lose nobody: 0.7 · 10 is a little more than 7 in some ways of writing it
        if together.sum() >= max(1, (1 - alpha) * count - 1e-9):
            return together
    if not together.any():
        raise TooFew(
            f"no gradient has half of the {count} within 2 sigma = {2 * sigma:g} around it: "
            "raise aggregate.sigma"
        )
    return together


def _together(x: np.ndarray, apart: np.ndarray, within: float) -> np.ndarray:
    """Those within a distance of the centre [n]; none if there are no medians."""
    medians = (apart <= within).sum(1) > len(x) / 2
    if not medians.any():
        return medians
    middle = _lengths(x - x[medians].mean(0))
    centre = int(np.argmin(np.where(medians, middle, np.inf)))
    return apart[centre] <= within


def _lengths(rows: np.ndarray) -> np.ndarray:
    """Norms [n]; of a lie that is too large to square, infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.nan_to_num(np.sqrt(np.einsum("ij,ij->i", rows, rows)), nan=np.inf)
