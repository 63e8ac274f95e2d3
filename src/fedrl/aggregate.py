"""How the clients' updates become one.

An aggregator reads a stream of (update, weight) and returns one update. The mean needs one
running sum, whatever the number of clients: a result is dropped as soon as it has been added.
Sums are in double precision and in the order of the stream, which the round loop sorts by client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


AGGREGATORS: dict[str, Aggregator] = {"mean": mean, "weighted": weighted}


def get(name: str) -> Aggregator:
    if name not in AGGREGATORS:
        raise UserError(f"aggregate.name is {name!r}; choose from {', '.join(AGGREGATORS)}")
    return AGGREGATORS[name]
