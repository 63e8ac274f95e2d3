"""How the clients' updates become one.

An aggregator reads a stream of (update, weight) and returns one update. The mean needs one
running sum, whatever the number of clients: a result is dropped as soon as it has been added.
Sums are in double precision and in the order of the stream, which the round loop sorts by client.

The median and the trimmed mean look at every number by itself, over all clients, and so hold all
updates of a round. Fewer than half of the clients, or fewer than the trimmed share, cannot move a
number beyond what the others sent. Both count every client the same, whatever its weight: weights
are what clients say of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from fedrl import tree
from fedrl.types import Tensors, UserError

Stream = Iterable[tuple[Tensors, float]]
Aggregator = Callable[[Stream], Tensors]


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


def median(stream: Stream) -> Tensors:
    """The middle of every number; of an even number of clients the mean of the middle two."""
    return _by_number(stream, lambda values: np.median(values, axis=0))


def trimmed(stream: Stream, share: float) -> Tensors:
    """The mean of every number without its ⌊share · n⌋ highest and as many lowest."""

    def middle(values: np.ndarray) -> np.ndarray:
        cut = int(share * len(values))
        kept = np.sort(values, axis=0)[cut : len(values) - cut]
        return np.asarray(kept.mean(axis=0))

    return _by_number(stream, middle)


def _by_number(stream: Stream, middle: Callable[[np.ndarray], np.ndarray]) -> Tensors:
    updates = [dict(tree.leaves(update)) for update, _ in stream]
    found = {}
    for name, first in updates[0].items():
        values = np.stack([np.asarray(update[name], np.float64) for update in updates])
        found[name] = middle(values).astype(np.asarray(first).dtype)
    return tree.unflatten(found)


NAMES = ("mean", "weighted", "median", "trimmed")


def get(name: str, trim: float = 0.2) -> Aggregator:
    """`trim` is the share that is cut on either side, where `name` is trimmed."""
    rules: dict[str, Aggregator] = {
        "mean": mean,
        "weighted": weighted,
        "median": median,
        "trimmed": partial(trimmed, share=trim),
    }
    if name not in rules:
        raise UserError(f"aggregate.name is {name!r}; choose from {', '.join(NAMES)}")
    return rules[name]
