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
0, their answer is 0, and its data are never learned from (`types.HeldApart`).

All but the norm bound with a given bound hold all updates of a round, as they were sent. Beside
them there are a few arrays of n × BLOCK doubles, whatever the size of an update. Distances take
n²/2 differences of updates, in double precision: of large values that are nearly equal the usual
shortcut ‖x‖² + ‖y‖² − 2xy would leave rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fedrl.core import tree
from fedrl.core.types import Tensors, TooFew

Stream = Iterable[tuple[Tensors, float]]
Leaves = dict[str, np.ndarray]

BLOCK = 1 << 16
"""Numbers of every update that are looked at together."""


def byzantine_count(byzantine: float, size: int) -> int:
    """f among `size` clients of a round: a number from 1 on, or below 1 a share, rounded up."""
    return int(byzantine) if byzantine >= 1 else part(byzantine, size)


def part(share: float, size: int) -> int:
    """⌈share · size⌉; rounding errors add nobody, though 0.07 · 100 is a little more than 7."""
    return math.ceil(share * size - 1e-9)


def left_out(share: float, size: int) -> int:
    """⌊share · size⌋; rounding errors lose nobody, though 0.29 · 100 is a little less than 29."""
    return math.floor(share * size + 1e-9)


def needed(name: str, byzantine: int, keep: int = 0) -> int:
    """The fewest updates that the rule has a meaning for; see the top of this file.

    `byzantine` are those that it is set against, for the trimmed mean c. A norm bound is one
    without a given bound.
    """
    if name == "bulyan":
        return 4 * byzantine + 3
    if name in ("krum", "multi-krum"):
        return max(2 * byzantine + 3, keep + byzantine if name == "multi-krum" else 0)
    if name == "trimmed":
        return max(3, 2 * byzantine + 1)
    return 3 if name in ("median", "norm-bound") else 1


def median(stream: Stream) -> Tensors:
    """The middle of every number; of an even number of clients the mean of the middle two."""
    return _by_number(_enough("median", stream), lambda values: np.median(values, axis=0))


def trimmed(stream: Stream, share: float, asked: int = 0) -> Tensors:
    """The mean of every number without its c highest and as many lowest.

    c is of all that were asked, 0 for those that came: liars always answer.
    """
    updates = _held(stream)
    cut = left_out(share, max(asked, len(updates)))
    _check_enough("trimmed", len(updates), cut)

    def middle(values: np.ndarray) -> np.ndarray:
        kept = np.sort(values, axis=0)[cut : len(values) - cut]
        return np.asarray(kept.mean(axis=0))

    return _by_number(updates, middle)


def krum(stream: Stream, byzantine: int) -> Tensors:
    """The update that lies closest to its neighbours, as it was sent."""
    updates = _enough("krum", stream, byzantine)
    best = int(np.argmin(scores(distances(updates), byzantine)))
    return tree.unflatten(updates[best])


def multi_krum(stream: Stream, byzantine: int, keep: int = 0) -> Tensors:
    """The mean of the `keep` updates with the lowest scores; 0 keeps n − f − 2."""
    updates = _enough("multi-krum", stream, byzantine, keep)
    order = np.argsort(scores(distances(updates), byzantine), kind="stable")
    best = sorted(order[: keep or len(updates) - byzantine - 2].tolist())
    return _by_number([updates[i] for i in best], lambda values: values.mean(axis=0))


def bulyan(stream: Stream, byzantine: int) -> Tensors:
    """Krum chooses n − 2f updates; of every number, those near their median are averaged."""
    updates = _enough("bulyan", stream, byzantine)
    count = len(updates) - 2 * byzantine
    apart, left, chosen = distances(updates), list(range(len(updates))), []
    for _ in range(count):
        best = int(np.argmin(scores(apart[np.ix_(left, left)], byzantine)))
        chosen.append(left.pop(best))

    def near_the_median(values: np.ndarray) -> np.ndarray:
        # In order of value: of two that are equally near, always the lower, whoever sent it.
        ordered = np.sort(values, axis=0)
        order = np.argsort(np.abs(ordered - np.median(ordered, axis=0)), axis=0, kind="stable")
        kept = np.take_along_axis(ordered, order[: count - 2 * byzantine], axis=0)
        return np.asarray(kept.mean(axis=0))

    return _by_number([updates[i] for i in chosen], near_the_median)


def bounded(stream: Stream, bound: float) -> Iterator[tuple[Tensors, float]]:
    """Updates no longer than `bound`; 0 stands for the median of the round's norms."""
    if not bound:
        stream = list(stream)
        _check_enough("norm-bound", len(stream))
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


def _enough(name: str, stream: Stream, byzantine: int = 0, keep: int = 0) -> list[Leaves]:
    """All updates of a round: the rule has a meaning for them, or there is no result at all."""
    updates = _held(stream)
    _check_enough(name, len(updates), byzantine, keep)
    return updates


def _check_enough(name: str, count: int, byzantine: int = 0, keep: int = 0) -> None:
    least = needed(name, byzantine, keep)
    if count < least:
        how = {
            "median": "",
            "trimmed": f" without the {byzantine} highest and lowest (aggregate.trim)",
            "norm-bound": " without a bound (aggregate.bound)",
        }.get(name, f" with {byzantine} assumed Byzantine clients (aggregate.byzantine)")
        raise TooFew(f"{name}{how} needs {least} updates, and {count} were usable")


def _held(stream: Stream) -> list[Leaves]:
    return [{name: np.asarray(x) for name, x in tree.leaves(update)} for update, _ in stream]


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
