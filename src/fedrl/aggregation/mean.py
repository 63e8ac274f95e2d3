"""How the clients' updates become one.

An aggregator reads a stream of (update, weight) and returns one update. The mean needs one
running sum, whatever the number of clients: a result is dropped as soon as it has been added.
Sums are in double precision and in the order of the stream, which the round loop sorts by client.

Rules for clients that may lie, and what they assume, are in `robust.py`. One that is given fewer
updates than it has a meaning for raises `TooFew`; the round loop then tries the round again, as
below the quorum. What is known to be too few before a run begins is refused there, and so is a rule
that has no meaning for what a method's clients send (`check_method`).

A weight is what a client says of itself. It counts at most as much as the method's heaviest client
could (`types.Weighs`): with 1e300 as its weight a liar would be the whole mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedrl.aggregation import robust
from fedrl.aggregation.robust import Stream, median, trimmed
from fedrl.core import tree
from fedrl.core.limits import not_negative
from fedrl.core.registry import suggestion
from fedrl.core.types import (
    Algorithm,
    HeldApart,
    Tensors,
    UserError,
    Weighs,
    Word,
    sends_parameters,
)

Aggregator = Callable[[Stream], Tensors]

NAMES = (
    "mean", "weighted", "median", "trimmed", "krum", "multi-krum", "bulyan", "norm-bound"
)  # fmt: skip
SUMS = ("mean", "weighted")
"""Rules that one liar can move as far as it likes."""
BY_NUMBER = ("median", "trimmed", "bulyan")
"""Rules that compare what clients say of every single number."""
BY_DISTANCE = ("krum", "multi-krum", "bulyan")
"""Rules that compare whole updates."""


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
        if self.name not in NAMES:
            raise UserError(
                f"aggregate.name is {self.name!r}; {suggestion(self.name, list(NAMES))}"
            )
        if not 0 <= self.trim < 0.5:
            raise UserError(f"aggregate.trim is {self.trim}; it must lie in [0, 0.5)")
        not_negative(self, "aggregate.", "byzantine", "keep", "bound")
        if self.byzantine > 1 and self.byzantine % 1:
            raise UserError(
                f"aggregate.byzantine is {self.byzantine}; from 1 on it is a number of clients, "
                "below 1 a share"
            )

    def against(self, size: int) -> int:
        """Liars among `size` clients that the rule is set against; not read by all."""
        if self.name == "trimmed":
            return robust.left_out(self.trim, size)
        return robust.byzantine_count(self.byzantine, size)

    def least(self, size: int) -> int:
        """The fewest updates that the rule has a meaning for where `size` clients are asked."""
        if self.name == "norm-bound" and self.bound:
            return 1
        return robust.needed(self.name, self.against(size), self.keep)

    @property
    def robust(self) -> bool:
        """Whether it withstands a few liars; metrics then have to as well."""
        return self.name not in SUMS

    def check(self, size: int, kind: str) -> None:
        """Refuse what cannot work with `size` clients per round in a federation of this kind."""
        least = self.least(size)
        if least == 1:
            return
        if kind != "federated":
            raise UserError(
                f'aggregate.name = "{self.name}" compares clients, but each is alone when '
                f'federation.kind is "{kind}": set aggregate.name = "mean"'
            )
        if size < least:
            raise UserError(
                f'aggregate.name = "{self.name}" needs {least} clients per round'
                f"{self._why(size)}, and there are {size}: raise federation.clients or cohort"
                f"{self._instead()}"
            )
        if self.name == "trimmed" and not self.against(size):
            raise UserError(
                f"aggregate.trim is {self.trim}, which of {size} clients per round leaves out "
                f'nobody: raise it to 1/{size} or more, or set aggregate.name = "mean"'
            )

    def _why(self, size: int) -> str:
        if self.name in BY_DISTANCE:
            return f" against {self.against(size)} Byzantine clients"
        return " (of two, either alone decides what the median is)"

    def _instead(self) -> str:
        if self.name in BY_DISTANCE:
            kept = " or keep" if self.name == "multi-krum" and self.keep else ""
            return f", or lower aggregate.byzantine{kept}"
        return ", or set aggregate.bound" if self.name == "norm-bound" else ""


def check_method(rule: Settings, name: str, algorithm: Algorithm, noise: bool, buffer: int) -> None:
    """Refuse a rule that has no meaning for what this method's clients send."""
    if rule.name == "norm-bound" and sends_parameters(algorithm):
        raise UserError(
            f'aggregate.name = "norm-bound" bounds changes, but {name} sends values: '
            'choose another, for instance "median"'
        )
    if rule.name == "weighted" and isinstance(algorithm, Weighs) and algorithm.heaviest == 1:
        raise UserError(
            f'aggregate.name = "weighted" is "mean" here, because all clients of {name} weigh the '
            'same: set aggregate.name = "mean"'
        )
    if not isinstance(algorithm, HeldApart):
        return
    if algorithm.counts and (rule.name not in SUMS or noise or buffer):
        asked = f'aggregate.name = "{rule.name}"' if rule.name not in SUMS else ""
        raise UserError(
            f"{asked or ('privacy.noise' if noise else 'async_buffer.size')} would spoil the "
            f"counts of holders that {name} divides by, which have to be added up as they are: set "
            f"{algorithm.without_counts}"
        )
    if rule.name in BY_NUMBER and algorithm.held_apart:
        raise UserError(
            f'aggregate.name = "{rule.name}" looks at every number over all clients, but in '
            f"{name} only some of them hold a row of {' or '.join(sorted(algorithm.held_apart))}: "
            'such rows would never change. Choose "multi-krum", "norm-bound" or "mean"'
        )


def weighted(stream: Stream, heaviest: float = math.inf) -> Tensors:
    """Σ w_i x_i / Σ w_i; who claims more than `heaviest` counts as much as that."""
    total: dict[str, np.ndarray] = {}
    dtypes: dict[str, np.dtype] = {}
    mass = 0.0
    for update, claimed in stream:
        weight = min(claimed, heaviest)
        mass += weight
        for name, leaf in tree.leaves(update):
            value = np.asarray(leaf)
            if name not in total:
                total[name] = np.zeros(value.shape, np.float64)
                dtypes[name] = value.dtype
            total[name] += value if weight == 1.0 else weight * value.astype(np.float64)
    return tree.unflatten({name: (total[name] / mass).astype(dtypes[name]) for name in total})


def mean(stream: Stream) -> Tensors:
    """Every client counts the same."""
    return weighted((update, 1.0) for update, _ in stream)


def norm_bound(stream: Stream, bound: float = 0.0) -> Tensors:
    """The mean of updates that were cut to a norm; 0 is the median of the round's norms."""
    return mean(robust.bounded(stream, bound))


def build(settings: Settings, size: int, algorithm: Algorithm | None = None) -> Aggregator:
    """The rule of these settings where `size` clients of this method are asked per round.

    `size` 0: those that come. Without a method nothing bounds a weight.
    """
    byzantine = settings.against(size)
    heaviest = algorithm.heaviest if isinstance(algorithm, Weighs) else math.inf
    rules: dict[str, Aggregator] = {
        "mean": mean,
        "weighted": partial(weighted, heaviest=heaviest),
        "median": median,
        "trimmed": partial(trimmed, share=settings.trim, asked=size),
        "krum": partial(robust.krum, byzantine=byzantine),
        "multi-krum": partial(robust.multi_krum, byzantine=byzantine, keep=settings.keep),
        "bulyan": partial(robust.bulyan, byzantine=byzantine),
        "norm-bound": partial(norm_bound, bound=settings.bound),
    }
    return rules[settings.name]


def get(
    name: str, trim: float = 0.2, byzantine: int = 0, keep: int = 0, bound: float = 0.0
) -> Aggregator:
    """The rule of a name, over as many updates as come."""
    return build(Settings(name, trim, float(byzantine), keep, bound), 0)
