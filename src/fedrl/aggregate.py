"""How the clients' updates become one.

An aggregator reads a stream of (update, weight) and returns one update. The mean needs one
running sum, whatever the number of clients: a result is dropped as soon as it has been added.
Sums are in double precision and in the order of the stream, which the round loop sorts by client.

Rules for clients that may lie, and what they assume, are in `robust.py`. One that is given fewer
updates than it has a meaning for raises `TooFew`; the round loop then tries the round again, as
below the quorum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedrl import robust, tree
from fedrl.limits import not_negative
from fedrl.registry import suggestion
from fedrl.robust import Stream, median, trimmed
from fedrl.types import Tensors, UserError, Word

Aggregator = Callable[[Stream], Tensors]

NAMES = (
    "mean", "weighted", "median", "trimmed", "krum", "multi-krum", "bulyan", "norm-bound"
)  # fmt: skip
BY_DISTANCE = ("krum", "multi-krum", "bulyan")
"""Rules that compare whole updates, and so need several of them."""


@dataclass(frozen=True)
class Settings:
    """How updates become one."""

    # mean: every client counts the same. weighted: by the number of its examples. Against a few
    # liars, number by number: median, trimmed (the mean without the extremes); by whole updates:
    # krum (the one nearest to its neighbours), multi-krum (the mean of several such), bulyan (both
    # ways, one after the other); by length: norm-bound (the mean of updates cut to a norm).
    name: Word = "mean"
    # What trimmed leaves out on either side, as a share of the clients; only read by trimmed.
    trim: float = 0.2
    # f: clients of a round that are assumed to lie: from 1 on a number, below 1 a share of those
    # that are asked (with buffer.size: of all clients), rounded up; only read by krum, multi-krum
    # and bulyan.
    attackers: float = 0.2
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
        not_negative(self, "aggregate.", "attackers", "keep", "bound")
        if self.attackers > 1 and self.attackers % 1:
            raise UserError(
                f"aggregate.attackers is {self.attackers}; from 1 on it is a number of clients, "
                "below 1 a share"
            )

    def check(self, size: int, kind: str) -> None:
        """Refuse what cannot work with `size` clients per round in a federation of this kind."""
        if self.name not in BY_DISTANCE:
            return
        if kind != "federated":
            raise UserError(
                f'aggregate.name = "{self.name}" compares clients, but each is alone when '
                f'federation.kind is "{kind}": set aggregate.name = "mean"'
            )
        attackers = robust.hostile(self.attackers, size)
        least = robust.needed(self.name, attackers, self.keep)
        if size < least:
            kept = " or keep" if self.name == "multi-krum" and self.keep else ""
            raise UserError(
                f'aggregate.name = "{self.name}" needs {least} clients per round against '
                f"{attackers} attackers, and there are {size}: raise federation.clients or cohort, "
                f"or lower aggregate.attackers{kept}"
            )


def weighted(stream: Stream) -> Tensors:
    """Σ w_i x_i / Σ w_i, for instance with the number of a client's examples as its weight."""
    total: dict[str, np.ndarray] = {}
    dtypes: dict[str, Any] = {}
    mass = 0.0
    for update, weight in stream:
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


def get(
    name: str, trim: float = 0.2, attackers: int = 0, keep: int = 0, bound: float = 0.0
) -> Aggregator:
    """The rule of a name. What it does not read may have any value; see `Settings`."""
    rules: dict[str, Aggregator] = {
        "mean": mean,
        "weighted": weighted,
        "median": median,
        "trimmed": partial(trimmed, share=trim),
        "krum": partial(robust.krum, attackers=attackers),
        "multi-krum": partial(robust.multi_krum, attackers=attackers, keep=keep),
        "bulyan": partial(robust.bulyan, attackers=attackers),
        "norm-bound": partial(norm_bound, bound=bound),
    }
    if name not in rules:
        raise UserError(f"aggregate.name is {name!r}; choose from {', '.join(NAMES)}")
    return rules[name]


def build(settings: Settings, size: int) -> Aggregator:
    """The rule of these settings where `size` clients are asked per round."""
    attackers = robust.hostile(settings.attackers, size)
    return get(settings.name, settings.trim, attackers, settings.keep, settings.bound)
