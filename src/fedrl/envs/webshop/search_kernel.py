"""The compiled scan of a large index: the best documents without adding up every posting.

Documents are scanned in windows that fit the cache. While fewer than k are found, all terms are
added up. Then the terms with the smallest possible contributions, as many as together cannot lift a
document over the k-th best score so far, only top up documents that the others bring near it
(MaxScore). Scores are exact, so the answers are those of the plain sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedrl.envs.webshop.search import Floats, Index, Query

WINDOW = 1 << 13
SLACK = 1.0 - 1e-6
"""Bounds are compared a little below the k-th score, since that was rounded to single precision."""


def best(index: Index, query: Query, k: int) -> tuple[NDArray[np.int64], Floats]:
    """Documents, best first, and their scores."""
    tables = query.weights[:, None] - query.weights[:, None] / index.saturation  # [T, codes]
    bounds = tables.max(axis=1).astype(np.float64)
    order = np.argsort(-bounds, kind="stable")
    docs, scores = _scan(
        index.docs,
        index.codes,
        query.starts[order],
        query.stops[order],
        tables[order],
        bounds[order],
        min(k, len(index)),
        len(index),
    )
    ranked = np.lexsort((docs, -scores))
    return docs[ranked], scores[ranked]


@njit(cache=True)
def _scan(docs, codes, starts, stops, tables, bounds, k, total):  # type: ignore[no-untyped-def]
    terms = len(starts)
    at = starts.copy()
    rest = np.zeros(terms + 1)  # what the terms from t on can add at most
    for t in range(terms - 1, -1, -1):
        rest[t] = rest[t + 1] + bounds[t]
    sums = np.zeros(WINDOW)
    found = np.empty(k, np.int64)
    scores = np.empty(k, np.float32)  # a heap: the worst of the best is in front
    size = 0
    needed = terms  # the first `needed` terms are added up, the others looked up
    low = np.int64(0)
    while True:
        low = np.int64(total)  # the next window begins where a needed term has a document
        for t in range(needed):
            if at[t] < stops[t] and docs[at[t]] < low:
                low = np.int64(docs[at[t]])
        if low >= total:
            break
        high = low + WINDOW
        for t in range(needed):
            place, stop = at[t], stops[t]
            while place < stop and docs[place] < high:
                sums[docs[place] - low] += tables[t, codes[place]]
                place += 1
            at[t] = place
        for offset in range(min(WINDOW, total - low)):
            value = sums[offset]
            if value == 0.0:
                continue
            sums[offset] = 0.0
            doc = low + offset
            if size == k and value + rest[needed] < scores[0] * SLACK:
                continue
            for t in range(needed, terms):
                if size == k and value + rest[t] < scores[0] * SLACK:
                    break
                at[t] = _reach(docs, at[t], stops[t], doc)
                if at[t] < stops[t] and docs[at[t]] == doc:
                    value += tables[t, codes[at[t]]]
            score = np.float32(value)
            if size < k:
                _sift_up(found, scores, size, doc, score)
                size += 1
            elif score > scores[0]:  # at a tie the earlier document stays
                _sift_down(found, scores, size, doc, score)
        while size == k and needed > 1 and rest[needed - 1] < scores[0] * SLACK:
            needed -= 1
    return found[:size], scores[:size]


@njit(cache=True)
def _reach(docs, start, stop, doc):  # type: ignore[no-untyped-def]
    """The first place from `start` on whose document is not before `doc`: steps that double."""
    step = 1
    low = start
    while low + step < stop and docs[low + step] < doc:
        low += step
        step *= 2
    high = min(low + step, stop)
    while low < high:
        middle = (low + high) // 2
        if docs[middle] < doc:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _worse(found, scores, one, other):  # type: ignore[no-untyped-def]
    if scores[one] != scores[other]:
        return scores[one] < scores[other]
    return found[one] > found[other]


@njit(cache=True)
def _swap(found, scores, one, other):  # type: ignore[no-untyped-def]
    found[one], found[other] = found[other], found[one]
    scores[one], scores[other] = scores[other], scores[one]


@njit(cache=True)
def _sift_up(found, scores, size, doc, score):  # type: ignore[no-untyped-def]
    found[size], scores[size] = doc, score
    place = size
    while place > 0 and _worse(found, scores, place, (place - 1) // 2):
        _swap(found, scores, place, (place - 1) // 2)
        place = (place - 1) // 2


@njit(cache=True)
def _sift_down(found, scores, size, doc, score):  # type: ignore[no-untyped-def]
    found[0], scores[0] = doc, score
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _worse(found, scores, child + 1, child):
            child += 1
        if not _worse(found, scores, child, place):
            break
        _swap(found, scores, child, place)
        place = child
