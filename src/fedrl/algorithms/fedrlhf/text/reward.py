"""What a client's texts are worth: R_k = λ_k R_sentiment + (1 − λ_k) R0, each in [0, 1].

    R_sentiment   P(positive) by the client's own sentiment model, or how much its person likes such
                  texts, learned from answers to "which of these two is better?"
    R0            min(1, exp(m − h)): m is the mean log-probability of the text's new tokens under
                  the reference model, h that of what people wrote at the same place in the
                  client's own training reviews

exp(m − h) is the ratio of two perplexities: 1 for a text as likely as people's, 1/2 for one whose
tokens are half as likely. It ends at 1 for a reason: the most likely texts of a model are not its
best but endless repetitions, and if more likelihood always paid, these would be the optimum. So
there is nothing to gain from being more predictable than people are.

All of it stays on the client: the sentiment model and the answers know its reviews, and h is a
number about them. Where λ_k is 0, nobody is asked and nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.core.types import Metrics
from fedrl.envs.imdb.world import Review
from fedrl.feedback import sentiment, text_preferences

HUMAN = 256
"""Training reviews whose likelihood is the measure of R0."""

Floats = NDArray[np.float64]
Felt = Callable[[Sequence[str]], Any]
"""R_sentiment: texts to numbers in [0, 1]."""


class Paid(NamedTuple):
    """Per text [n]; `sentiment` is NaN where λ is 0."""

    reward: Floats
    sentiment: Floats
    intrinsic: Floats


class Judge(NamedTuple):
    """One client's: its λ, the likelihood h of its people's texts, and its R_sentiment."""

    weight: float
    human: float
    felt: Felt | None  # None where λ is 0

    def pay(self, texts: Sequence[str], likelihood: Floats) -> Paid:
        """`likelihood` is the mean log-probability under the reference, m."""
        intrinsic = fluency(likelihood, self.human)
        if self.felt is None:
            return Paid(intrinsic, np.full(len(texts), np.nan), intrinsic)
        felt = np.asarray(self.felt(texts), np.float64)
        return Paid(self.weight * felt + (1 - self.weight) * intrinsic, felt, intrinsic)


def fluency(likelihood: Floats, human: float) -> Floats:
    """R0."""
    return np.minimum(1.0, np.exp(np.asarray(likelihood, np.float64) - human))


def pay_all(
    judges: Mapping[int, Judge], owners: Sequence[int], texts: Sequence[str], likelihood: Floats
) -> Paid:
    """Texts of several clients, each by its owner's judge."""
    paid = Paid(*(np.empty(len(texts)) for _ in Paid._fields))
    whose = np.asarray(owners)
    for owner in dict.fromkeys(owners):
        rows = np.flatnonzero(whose == owner)
        found = judges[owner].pay([texts[i] for i in rows.tolist()], likelihood[rows])
        for whole, part in zip(paid, found, strict=True):
            whole[rows] = part
    return paid


def means(paid: Paid) -> Metrics:
    """Without what nobody judged."""
    known = {name: values[np.isfinite(values)] for name, values in paid._asdict().items()}
    return {name: float(values.mean()) for name, values in known.items() if len(values)}


class Judges:
    """The clients' judges. What only depends on a client's reviews is made once in a process.

    `settings` are those of `fedrlhf-text`; `likelihood` gives m of what people wrote in texts.
    """

    def __init__(
        self,
        settings: Any,
        weights: Sequence[float],
        reviews: Sequence[Sequence[Review]],
        likelihood: Callable[[Sequence[str]], Floats],
    ) -> None:
        self.settings, self.weights, self.reviews = settings, weights, reviews
        self.likelihood = likelihood
        self._humans: dict[int, float] = {}
        self._fitted: dict[int, Any] = {}
        self._likings: dict[int, tuple[preference_queries.Answered, Felt]] = {}
        self._classifier: Any = None

    def of(self, owner: int) -> Judge:
        """This client's as it stands now: a person may have said more since the last round."""
        if owner not in self._humans:
            texts = [review.text for review in self.reviews[owner][:HUMAN]]
            self._humans[owner] = float(self.likelihood(texts).mean())
        weight, human = self.weights[owner], self._humans[owner]
        return Judge(weight, human, self._felt(owner) if weight else None)

    def _felt(self, owner: int) -> Felt:
        settings = self.settings
        if settings.feedback != "sentiment":
            return self._liking(owner)
        if settings.sentiment != "builtin":  # public, and the same for all clients
            return self.classifier.positive
        if owner not in self._fitted:
            texts = [review.text for review in self.reviews[owner]]
            labels = [review.label for review in self.reviews[owner]]
            self._fitted[owner] = sentiment.fit(texts, labels)
        return self._fitted[owner].positive

    @property
    def classifier(self) -> Any:
        """The model of `algorithm.sentiment`, loaded when it is first needed."""
        if self._classifier is None:
            from fedrl.feedback import hf_sentiment as classifier

            self._classifier = classifier.load(self.settings.sentiment, self.settings.device)
        return self._classifier

    def _liking(self, owner: int) -> Felt:
        """By a person's answers; 0.5 for everything while there are none."""
        if self.settings.feedback == "logged":
            preference_queries.require_folder(self.settings.feedback_folder, owner)
        said = preference_queries.answered(self.settings.feedback_folder, owner)
        if owner not in self._likings or self._likings[owner][0] != said:
            self._likings[owner] = said, text_preferences.fit(said).liking
        return self._likings[owner][1]
