"""The mean of the clients' updates, every client alike or by what it says that it weighs.

It needs one running sum, whatever the number of clients: a result is dropped as soon as it has been
added. Sums are in double precision and in the order of the stream, which the round loop sorts by
client. Nothing here withstands a client that lies: `robust.py` has rules that do.

A weight is what a client says of itself. It counts at most as much as the method's heaviest client
could (`abilities.Weighs`): with 1e300 as its weight a liar would be the whole mean.
"""

from __future__ import annotations

import math

import numpy as np

from fedrl.aggregation.rule import Stream, rule
from fedrl.aggregation.settings import Settings
from fedrl.core import tree
from fedrl.core.types import Tensors

BLOCK = 1 << 15
"""Numbers at a time: they stay in the processor's cache between the steps of a sum."""


@rule(
    "mean", Settings=Settings, given=lambda *_: {}, least=1, values=True, secure=True, sums=True,
    robust=False, by_number=False,
)  # fmt: skip
def mean(stream: Stream) -> Tensors:
    """Every client counts the same."""
    return weighted((update, 1.0) for update, _ in stream)


@rule(
    "weighted", Settings=Settings, given=lambda *_: {}, least=1, values=True, weighs=True,
    sums=True, robust=False, by_number=False,
)  # fmt: skip
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
            _add(total[name], value, weight)
    # What is told is dropped: a large model's sums and their mean are not there twice.
    return tree.unflatten({name: _mean(total.pop(name), mass, dtypes[name]) for name in [*total]})


def _add(total: np.ndarray, value: np.ndarray, weight: float) -> None:
    """total += weight · value, in double precision."""
    sums, values = total.reshape(-1), value.reshape(-1)
    wide = np.empty(min(BLOCK, sums.size))
    for start in range(0, sums.size, BLOCK):
        part = sums[start : start + BLOCK]
        now = wide[: part.size]
        now[:] = values[start : start + BLOCK]
        if weight != 1.0:
            now *= weight
        part += now


def _mean(total: np.ndarray, mass: float, dtype: np.dtype) -> np.ndarray:
    """total / mass, in this type."""
    found = np.empty(total.shape, dtype)
    sums, means = total.reshape(-1), found.reshape(-1)
    for start in range(0, sums.size, BLOCK):
        part = sums[start : start + BLOCK]
        part /= mass
        means[start : start + BLOCK] = part
    return found
