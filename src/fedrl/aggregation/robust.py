"""Rules that a few hostile clients cannot move far. f is how many are assumed among n updates.

By number, every number by itself over all clients:

    median       its middle; fewer than half of the clients cannot move it beyond the others'.
                 n ≥ 3: of two, either alone puts the middle where it likes
    trimmed      its mean without the c highest and as many lowest, c = ⌊share · clients asked⌋.
                 n ≥ 2c + 1, or nothing is left, and c ≥ 1, or it is the mean

By distance, an update's tensors flattened into one vector x_i:

    Krum         score_i = Σ ‖x_i − x_j‖² over its n − f − 2 nearest others; the update with the
                 lowest score itself. n ≥ 2f + 3
    multi-Krum   the mean of the m updates with the lowest scores. n ≥ 2f + 3
    Bulyan       n − 2f updates, chosen by Krum one after the other among those left; then, number
                 by number, the mean of the n − 4f that are nearest to their median. n ≥ 4f + 3

By length, ‖x_i‖:

    norm bound   x_i · min(1, bound / ‖x_i‖); their mean is then at most `bound` long. If the bound
                 is the median of the norms, n ≥ 3, as for every median

Papers: Yin et al. 2018 (median, trimmed mean), Blanchard et al. 2017 (Krum), El Mhamdi et al. 2018
(Bulyan), Sun et al. 2019 (norm bound). Every client counts the same, whatever its weight: weights
are what clients say of themselves. Ties go to the client that comes first. They are no accident
where one neighbour is left to count (Krum with n = 3, the end of Bulyan's choice with f ≤ 2): two
updates that are nearest to each other have the same score.

Given fewer updates than that, a rule raises `TooFew` instead of a result that means nothing. Rules
by number ask what several clients say of one number: where one client holds it and the others send
0, their answer is 0, and its data are never learned from (`abilities.HeldApart`).

All but the norm bound with a given bound hold all updates of a round, as they were sent. Beside
them there are a few arrays of n × BLOCK doubles, whatever the size of an update. Distances take
n²/2 differences of updates, in double precision: of large values that are nearly equal the usual
shortcut ‖x‖² + ‖y‖² − 2xy would leave rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fedrl.aggregation.mean import mean
from fedrl.aggregation.rule import Need, Stream, Updates, rule
from fedrl.aggregation.settings import Settings, byzantine_count, left_out
from fedrl.core import tree
from fedrl.core.types import Tensors

Leaves = dict[str, np.ndarray]

BLOCK = 1 << 16
"""Numbers of every update that are looked at together."""


MIDDLE = " (of two, either alone decides what the median is)"


def against(byzantine: int, least: int, keys: str = "aggregate.byzantine") -> Need:
    """The need of a rule by distance, with f Byzantine clients."""
    return Need(
        least,
        why=f" against {byzantine} Byzantine clients",
        instead=f", or lower {keys}",
        how=f" with {byzantine} assumed Byzantine clients (aggregate.byzantine)",
        byzantine=byzantine,
    )


def byzantine_of(settings: Settings, size: int, among: int) -> dict[str, Any]:
    return {"byzantine": byzantine_count(settings.byzantine, among)}


@rule(
    "median", Settings=Settings, given=lambda *_: {}, least=lambda _: Need(3, MIDDLE), values=True
)
def median(updates: Updates) -> Tensors:
    """The middle of every number; of an even number of clients the mean of the middle two."""
    return _by_number(_flat(updates), lambda values: np.median(values, axis=0))


def _trimmed_need(size: int, share: float, asked: int = 0) -> Need:
    cut = left_out(share, max(asked, size))
    how = f" without the {cut} highest and lowest (aggregate.trim)"
    idle = (
        f"aggregate.trim is {share}, which of {size} clients per round leaves out nobody: raise it "
        f'to 1/{size} or more, or set aggregate.name = "mean"'
    )
    return Need(max(3, 2 * cut + 1), MIDDLE, how=how, idle="" if cut else idle)


@rule(
    "trimmed", Settings=Settings, least=_trimmed_need, values=True,
    given=lambda settings, size, _: {"share": settings.trim, "asked": size},
)  # fmt: skip
def trimmed(updates: Updates, share: float, asked: int = 0) -> Tensors:
    """The mean of every number without its c highest and as many lowest.

    c is of all that were asked, 0 for those that came: liars always answer.
    """
    cut = left_out(share, max(asked, len(updates)))

    def middle(values: np.ndarray) -> np.ndarray:
        kept = np.sort(values, axis=0)[cut : len(values) - cut]
        return np.asarray(kept.mean(axis=0))

    return _by_number(_flat(updates), middle)


@rule(
    "krum", Settings=Settings, given=byzantine_of, values=True, by_number=False,
    least=lambda _, byzantine: against(byzantine, 2 * byzantine + 3),
)  # fmt: skip
def krum(updates: Updates, byzantine: int) -> Tensors:
    """The update that lies closest to its neighbours, as it was sent."""
    sent = _flat(updates)
    best = int(np.argmin(scores(distances(sent), byzantine)))
    return tree.unflatten(sent[best])


def _multi_krum_need(_: int, byzantine: int, keep: int = 0) -> Need:
    keys = "aggregate.byzantine or keep" if keep else "aggregate.byzantine"
    return against(byzantine, max(2 * byzantine + 3, keep + byzantine), keys)


@rule(
    "multi-krum", Settings=Settings, least=_multi_krum_need, values=True, by_number=False,
    given=lambda settings, *count: byzantine_of(settings, *count) | {"keep": settings.keep},
)  # fmt: skip
def multi_krum(updates: Updates, byzantine: int, keep: int = 0) -> Tensors:
    """The mean of the `keep` updates with the lowest scores; 0 keeps n − f − 2."""
    sent = _flat(updates)
    order = np.argsort(scores(distances(sent), byzantine), kind="stable")
    best = sorted(order[: keep or len(sent) - byzantine - 2].tolist())
    return _by_number([sent[i] for i in best], lambda values: values.mean(axis=0))


@rule(
    "bulyan", Settings=Settings, given=byzantine_of, values=True,
    least=lambda _, byzantine: against(byzantine, 4 * byzantine + 3),
)  # fmt: skip
def bulyan(updates: Updates, byzantine: int) -> Tensors:
    """Krum chooses n − 2f updates; of every number, those near their median are averaged."""
    sent = _flat(updates)
    count = len(sent) - 2 * byzantine
    apart, left, chosen = distances(sent), list(range(len(sent))), []
    for _ in range(count):
        best = int(np.argmin(scores(apart[np.ix_(left, left)], byzantine)))
        chosen.append(left.pop(best))

    def near_the_median(values: np.ndarray) -> np.ndarray:
        # In order of value: of two that are equally near, always the lower, whoever sent it.
        ordered = np.sort(values, axis=0)
        order = np.argsort(np.abs(ordered - np.median(ordered, axis=0)), axis=0, kind="stable")
        kept = np.take_along_axis(ordered, order[: count - 2 * byzantine], axis=0)
        return np.asarray(kept.mean(axis=0))

    return _by_number([sent[i] for i in chosen], near_the_median)


def _norm_bound_need(_: int, bound: float = 0.0) -> Need:
    how = " without a bound (aggregate.bound)"
    return Need(1) if bound else Need(3, MIDDLE, ", or set aggregate.bound", how)


@rule(
    "norm-bound", Settings=Settings, least=_norm_bound_need, by_number=False,
    given=lambda settings, *_: {"bound": settings.bound},
)  # fmt: skip
def norm_bound(stream: Stream, bound: float = 0.0) -> Tensors:
    """The mean of updates that were cut to a norm; 0 is the median of the round's norms."""
    return mean(bounded(stream, bound))


def bounded(stream: Stream, bound: float) -> Iterator[tuple[Tensors, float]]:
    """Updates no longer than `bound`; 0 stands for the median of the round's norms."""
    if not bound:
        stream = list(stream)
        bound = float(np.median([norm(update) for update, _ in stream]))
    for update, weight in stream:
        length = norm(update)
        yield (update if length <= bound else shrunk(update, bound / length)), weight


def norm(update: Tensors) -> float:
    """‖x‖ over all tensors; infinite where the squares of numbers that are finite are not."""
    with np.errstate(over="ignore"):
        squares = (np.square(np.asarray(leaf, np.float64)).sum() for _, leaf in tree.leaves(update))
        return math.sqrt(sum(map(float, squares)))


def shrunk(update: Tensors, factor: float) -> Tensors:
    def times(leaf: np.ndarray) -> np.ndarray:
        return np.asarray(factor * leaf.astype(np.float64)).astype(leaf.dtype)

    return tree.map(times, update)


def scores(apart: np.ndarray, byzantine: int) -> np.ndarray:
    """Krum's [n] from squared distances [n, n]: the sum of those to the n − f − 2 nearest others.

    Bulyan goes on with fewer updates than Krum needs: there at least one neighbour counts.
    """
    count = len(apart)
    others = np.where(np.eye(count, dtype=bool), np.inf, apart)
    return np.sort(others, axis=1)[:, : max(1, count - byzantine - 2)].sum(axis=1)


def distances(updates: Sequence[Leaves]) -> np.ndarray:
    """‖x_i − x_j‖² [n, n] over all tensors. A lie may be too large to square: it is then far."""
    apart = np.zeros((len(updates), len(updates)))
    with np.errstate(over="ignore"):
        for name in updates[0]:
            for _, values in _blocks(updates, name):
                for i, row in enumerate(values):
                    difference = values[i + 1 :] - row
                    apart[i, i + 1 :] += np.einsum("ij,ij->i", difference, difference)
    return apart + apart.T


def _flat(updates: Updates) -> list[Leaves]:
    return [{name: np.asarray(x) for name, x in tree.leaves(update)} for update, _ in updates]


def _by_number(updates: Sequence[Leaves], middle: Callable[[np.ndarray], np.ndarray]) -> Tensors:
    """`middle` of n × BLOCK numbers at a time, in the tensors' own dtypes; nothing of nothing."""
    middles = {}
    for name, first in (updates[0] if updates else {}).items():
        flat = np.empty(first.size, first.dtype)
        for start, values in _blocks(updates, name):
            flat[start : start + values.shape[1]] = middle(values)
        middles[name] = flat.reshape(first.shape)
    return tree.unflatten(middles)


def _blocks(updates: Sequence[Leaves], name: str) -> Iterator[tuple[int, np.ndarray]]:
    """Where a block of one tensor begins, and its numbers [n, ≤ BLOCK] in double precision."""
    rows = [update[name].reshape(-1) for update in updates]
    for start in range(0, rows[0].size, BLOCK):
        yield start, np.stack([row[start : start + BLOCK] for row in rows], dtype=np.float64)
