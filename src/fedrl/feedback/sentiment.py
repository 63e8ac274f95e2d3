"""A client's private sentiment model: TF-IDF and logistic regression on its own labelled reviews.

With `preference_model`, which learns from a person's answers, it is the reward model of texts.

    features   words and pairs of neighbouring words, hashed into 2^18 buckets; x = (1 + ln count)
               · idf, idf = 1 + ln((1 + n) / (1 + texts with it)), each text scaled to length 1
    P(+ | x)   σ(w · x + b)
    fit        min over w, b of Σ −[y ln P + (1 − y) ln(1 − P)] + PENALTY / 2 · (|w|² + b²), by
               Newton's method with conjugate gradients

It judges texts of some 40 words, while reviews have hundreds: so it learns from pieces of about
WINDOW words, each with its review's label. On pieces of the genuine reviews it is then better and
its probabilities are true ones; on whole reviews it is as good as one that learned from those.

Nothing but NumPy, so that fitting thousands of reviews takes seconds, and nothing random. The model
knows its client's words and labels: it stays on the client.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

BITS = 18
BUCKETS = 2**BITS
WINDOW = 40
PENALTY = 0.3
TOLERANCE = 1e-4  # length of the gradient where fitting ends, relative to where it began
NEWTON, INNER = 50, 200  # at most so many steps, and so many of conjugate gradients in each

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits all over: 2^64 over the golden ratio


class Rows(NamedTuple):
    """A sparse matrix [height, BUCKETS] by its entries."""

    height: int
    row: Ints
    column: Ints
    value: Floats


class TextRewardModel(Protocol):
    """Fitted to labels (`SentimentModel`), to answers (`PreferenceModel`), or ready-made
    (`hf_sentiment`)."""

    def score(self, texts: Sequence[str]) -> Floats:
        """In [0, 1], for each text [n]; the other texts do not matter to it."""
        ...


@dataclass(frozen=True)
class SentimentModel:
    idf: Singles  # [BUCKETS]
    weights: Singles  # [BUCKETS]
    bias: float

    def score(self, texts: Sequence[str]) -> Floats:
        """P(positive) of each text [n]."""
        rows = tfidf(counts(map(words, texts)), self.idf)
        return sigmoid(times(rows, self.weights) + self.bias)


def fit(texts: Sequence[str], labels: Sequence[int]) -> SentimentModel:
    """The model of these texts, in whatever order; a label is 1 (positive) or 0."""
    cut = [list(pieces(words(text))) for text in texts]
    target = np.repeat(np.asarray(labels, np.float64), [len(parts) for parts in cut])
    counted = counts(piece for parts in cut for piece in parts)
    idf = inverse_frequency(counted)
    weights, bias = logistic(tfidf(counted, idf), target, PENALTY)
    return SentimentModel(idf, weights.astype(np.float32), bias)


def accuracy(model: SentimentModel, texts: Sequence[str], labels: Sequence[int]) -> float:
    return float(np.mean((model.score(texts) > 0.5) == np.asarray(labels, bool)))


# Features


def words(text: str) -> Words:
    """The words of a text as numbers, the same ones everywhere and always."""
    return np.array([_number(word) for word in _WORD.findall(text.lower())], np.uint64)


@lru_cache(maxsize=2**18)
def _number(word: str) -> int:
    return zlib.crc32(word.encode())


def pieces(text: Words) -> Iterator[Words]:
    """Parts of equal length, as near to WINDOW as there are."""
    parts = max(round(len(text) / WINDOW), 1)
    for i in range(parts):
        yield text[i * len(text) // parts : (i + 1) * len(text) // parts]


def counts(texts: Iterable[Words]) -> Rows:
    """How often each word and each pair of neighbours occurs in each text."""
    texts = list(texts)
    word = np.concatenate([np.zeros(0, np.uint64), *texts])
    row = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    within = row[1:] == row[:-1]
    pair = (word[:-1] * _MIX + word[1:] + np.uint64(1))[within]
    bucket = np.concatenate([word, pair]) * _MIX >> np.uint64(64 - BITS)
    place = np.concatenate([row, row[1:][within]]) * BUCKETS + bucket.astype(np.int64)
    entry, count = np.unique(place, return_counts=True)
    return Rows(len(texts), entry // BUCKETS, entry % BUCKETS, count.astype(np.float64))


def inverse_frequency(counted: Rows) -> Singles:
    having = np.bincount(counted.column, minlength=BUCKETS)
    return (1 + np.log((1 + counted.height) / (1 + having))).astype(np.float32)


def tfidf(counted: Rows, idf: Singles) -> Rows:
    value = (1 + np.log(counted.value)) * idf[counted.column]
    length = np.sqrt(np.bincount(counted.row, value**2, counted.height))
    return counted._replace(value=value / length[counted.row])


# Logistic regression


def logistic(rows: Rows, target: Floats, penalty: float, bias: bool = True) -> tuple[Floats, float]:
    """w [BUCKETS] and b (0 without `bias`) of the least loss; targets lie in [0, 1]."""
    one = float(bias)  # a last feature, the same in all rows
    theta = np.zeros(BUCKETS + 1)
    first = 0.0
    for _ in range(NEWTON):
        p = sigmoid(_scores(rows, theta, one))
        gradient = _back(rows, p - target, one) + penalty * theta
        size = float(np.linalg.norm(gradient))
        first = first or size
        if size <= TOLERANCE * first:
            break
        precision = min(0.5, float(np.sqrt(size / first)))
        step = _newton_step(rows, p * (1 - p), gradient, penalty, one, precision)
        before = loss(rows, target, theta, penalty, one)
        while loss(rows, target, theta + step, penalty, one) > before:
            step = step / 2
        theta = theta + step
    return theta[:-1], float(theta[-1])


def loss(rows: Rows, target: Floats, theta: Floats, penalty: float, one: float) -> float:
    score = _scores(rows, theta, one)
    return float(np.sum(np.logaddexp(0, score) - target * score) + penalty / 2 * theta @ theta)


def _newton_step(
    rows: Rows, curvature: Floats, gradient: Floats, penalty: float, one: float, precision: float
) -> Floats:
    """Conjugate gradients on (Xᵀ diag(curvature) X + penalty) step = −gradient."""
    step, rest = np.zeros_like(gradient), -gradient
    direction, square = rest, rest @ rest
    end = precision**2 * square
    for _ in range(INNER):
        image = _back(rows, curvature * _scores(rows, direction, one), one) + penalty * direction
        scale = square / (direction @ image)
        step = step + scale * direction
        rest = rest - scale * image
        before, square = square, rest @ rest
        if square <= end:
            break
        direction = rest + square / before * direction
    return step


def times(rows: Rows, weights: NDArray[np.floating]) -> Floats:
    sums = np.bincount(rows.row, rows.value * weights[rows.column], rows.height)
    return sums.astype(np.float64, copy=False)


def _scores(rows: Rows, theta: Floats, one: float) -> Floats:
    return times(rows, theta) + one * theta[-1]


def _back(rows: Rows, by_row: Floats, one: float) -> Floats:
    """Xᵀ times a number for each row."""
    sums = np.bincount(rows.column, rows.value * by_row[rows.row], BUCKETS)
    return np.append(sums, one * by_row.sum())


def sigmoid(score: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * score))
