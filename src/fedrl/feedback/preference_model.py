"""A client's private model of what its person prefers: texts' reward model, taught by answers.

    compare   two texts: the second is preferred with probability σ(u₂ − u₁) (Bradley and Terry);
              −1 says the first, +1 the second, 0 that neither is better
    rate      one text: liked with probability σ(u); −1 says disliked, +1 liked, 0 in between

u = w · x with the TF-IDF features of `sentiment`; rare is what is rare in the texts of the answers.
An answer v counts as the probability (1 + v) / 2, so that all are one logistic regression and "the
same" pulls two texts together. A text's score is σ(u): 0.5 for one of which nothing is known, and
for all texts as long as there are no answers.

Answers and model are the client's own: it keeps them and never sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrl.feedback import sentiment
from fedrl.feedback.sentiment import Floats, Rows, Singles

PENALTY = 0.1
"""Of |w|² / 2, beside a sum over answers: a person gives few, so each has to count."""


Comparison = tuple[tuple[str, ...], float]
"""One text to rate or two to compare, and what was said, in [−1, 1]."""


@dataclass(frozen=True)
class PreferenceModel:
    """A `TextRewardModel`."""

    idf: Singles  # [BUCKETS]
    weights: Singles  # [BUCKETS]

    def score(self, texts: Sequence[str]) -> Floats:
        """In [0, 1], for each text [n]."""
        rows = sentiment.tfidf(sentiment.counts(map(sentiment.words, texts)), self.idf)
        return sentiment.sigmoid(sentiment.times(rows, self.weights))


def fit(answers: Sequence[Comparison]) -> PreferenceModel:
    counted = sentiment.counts(sentiment.words(text) for asked, _ in answers for text in asked)
    idf = sentiment.inverse_frequency(counted)
    sizes = np.array([len(asked) for asked, _ in answers], np.int64)
    target = np.array([(1 + value) / 2 for _, value in answers], np.float64)
    weights, _ = sentiment.logistic(
        _differences(sentiment.tfidf(counted, idf), sizes), target, PENALTY, bias=False
    )
    return PreferenceModel(idf, weights.astype(np.float32))


def _differences(rows: Rows, sizes: np.ndarray) -> Rows:
    """A row for each answer: x of a text that is rated, x₂ − x₁ of two that are compared."""
    answer = np.repeat(np.arange(len(sizes)), sizes)  # of each text
    last = np.cumsum(sizes) - 1
    sign = np.full(len(answer), -1.0)
    sign[last] = 1.0
    return rows._replace(height=len(sizes), row=answer[rows.row], value=sign[rows.row] * rows.value)
