"""A client's private sentiment model: TF-IDF and logistic regression on its own labelled reviews.

With `preference_model`, which learns from a person's answers, it is the reward model of texts.

    features   words and pairs of neighbouring words, hashed into 2^18 buckets; x = (1 + ln count)
               · idf, idf = 1 + ln((1 + n) / (1 + texts with it)), each text scaled to length 1
    P(+ | x)   σ(w · x + b)
    fit        min over w, b of Σ −[y ln P + (1 − y) ln(1 − P)] + PENALTY / 2 · (|w|² + b²), by
               SciPy's Newton method with conjugate gradients

It judges texts of some 40 words, while reviews have hundreds: so it learns from pieces of about
WINDOW words, each with its review's label. On pieces of the genuine reviews it is then better and
its probabilities are true ones; on whole reviews it is as good as one that learned from those.

Nothing is random, and fitting thousands of reviews takes seconds. The model knows its client's
words and labels: it stays on the client.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array, hstack
from scipy.sparse.linalg import norm
from scipy.special import expit

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Words = NDArray[np.uint64]

BITS = 18
BUCKETS = 2**BITS
WINDOW = 40
PENALTY = 0.3
TOLERANCE = 1e-6  # mean change of w in a step where fitting ends

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits all over: 2^64 over the golden ratio


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
        return expit(rows @ self.weights + self.bias)


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


def counts(texts: Iterable[Words]) -> csr_array:
    """How often each word and each pair of neighbours occurs in each text."""
    texts = list(texts)
    word = np.concatenate([np.zeros(0, np.uint64), *texts])
    row = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    within = row[1:] == row[:-1]
    pair = (word[:-1] * _MIX + word[1:] + np.uint64(1))[within]
    bucket = np.concatenate([word, pair]) * _MIX >> np.uint64(64 - BITS)
    place = np.concatenate([row, row[1:][within]]) * BUCKETS + bucket.astype(np.int64)
    entry, count = np.unique(place, return_counts=True)
    at = entry // BUCKETS, entry % BUCKETS
    return csr_array((count.astype(np.float64), at), shape=(len(texts), BUCKETS))


def inverse_frequency(counted: csr_array) -> Singles:
    having = np.bincount(counted.indices, minlength=BUCKETS)
    return (1 + np.log((1 + counted.shape[0]) / (1 + having))).astype(np.float32)


def tfidf(counted: csr_array, idf: Singles) -> csr_array:
    value = (1 + np.log(counted.data)) * idf[counted.indices]
    rows = csr_array((value, counted.indices, counted.indptr), shape=counted.shape)
    lengths = norm(rows, axis=1)
    rows.data /= np.repeat(lengths, np.diff(rows.indptr))
    return rows


def logistic(
    rows: csr_array, target: Floats, penalty: float, bias: bool = True
) -> tuple[Floats, float]:
    """w [BUCKETS] and b (0 without `bias`) of the least loss; targets lie in [0, 1]."""
    last = np.full((rows.shape[0], 1), float(bias))  # a feature that is the same in all rows
    features = hstack([rows, csr_array(last)], format="csr")
    transposed = features.T.tocsr()

    def loss(theta: Floats) -> tuple[float, Floats]:
        """And its gradient."""
        score = features @ theta
        entropy = np.sum(np.logaddexp(0, score) - target * score)
        gradient = transposed @ (expit(score) - target) + penalty * theta
        return float(entropy + penalty / 2 * theta @ theta), gradient

    def curvature(theta: Floats, direction: Floats) -> Floats:
        p = expit(features @ theta)
        return transposed @ (p * (1 - p) * (features @ direction)) + penalty * direction

    found = minimize(
        loss, np.zeros(BUCKETS + 1), jac=True, hessp=curvature, method="Newton-CG",
        options={"xtol": TOLERANCE},
    )  # fmt: skip
    return found.x[:-1], float(found.x[-1])
