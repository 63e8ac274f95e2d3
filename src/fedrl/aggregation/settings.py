"""The keys of `[aggregate]` that the rules share which come with fedrl; others bring their own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedrl.core.limits import not_negative
from fedrl.core.types import UserError, Word


@dataclass(frozen=True)
class Settings:
    """How updates become one."""

    # mean: every client counts the same. weighted: by its tasks, ratings or steps.
    # Against a few liars, number by number: median, trimmed (the mean without the extremes); by
    # whole updates: krum (the one nearest to its neighbours), multi-krum (the mean of several),
    # bulyan (both ways, one after the other); by length: norm-bound (of updates cut to a norm).
    name: Word = "mean"
    # What trimmed leaves out on either side, as a share of the clients of a round, rounded down but
    # at least one; only read by trimmed.
    trim: float = 0.2
    # f: clients of a round that are assumed to lie: from 1 on a number, below 1 a share of those
    # that are asked (with async_buffer.size: of all clients), rounded up; only read by krum,
    # multi-krum and bulyan.
    byzantine: float = 0.2
    # m: updates that multi-krum averages; 0 is n - f - 2 of n that came; only read by multi-krum.
    keep: int = 0
    # Largest norm of an update; 0 is the median of the round's norms; only read by norm-bound.
    bound: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise UserError(f"aggregate.trim is {self.trim}; it must lie in [0, 0.5)")
        not_negative(self, "aggregate.", "byzantine", "keep", "bound")
        if self.byzantine > 1 and self.byzantine % 1:
            raise UserError(
                f"aggregate.byzantine is {self.byzantine}; from 1 on it is a number of clients, "
                "below 1 a share"
            )


def byzantine_count(byzantine: float, size: int) -> int:
    """f among `size` clients of a round: a number from 1 on, or below 1 a share, rounded up."""
    return int(byzantine) if byzantine >= 1 else part(byzantine, size)


def part(share: float, size: int) -> int:
    """⌈share · size⌉; rounding errors add nobody, though 0.07 · 100 is a little more than 7."""
    return math.ceil(share * size - 1e-9)


def left_out(share: float, size: int) -> int:
    """⌊share · size⌋; rounding errors lose nobody, though 0.29 · 100 is a little less than 29."""
    return math.floor(share * size + 1e-9)
