"""What a client's texts are worth: R_k = λ_k R_sentiment + (1 − λ_k) R0, each in [0, 1].

    R_sentiment   P(positive) by the client's own sentiment model, or how much its person likes such
                  texts, learned from answers to "which of these two is better?"
    R0            min(1, exp(m − h)): m is the mean log-probability of the text's new tokens under
                  the reference model, h that of what people wrote at the same place in the
                  client's own training reviews; or, with `intrinsic = "loglikelihood"`,
                  1 / (1 + exp(−(m − h) / s)), s the deviation of m over what people wrote

exp(m − h) is the ratio of two perplexities: 1 for a text as likely as people's, 1/2 for one whose
tokens are half as likely. It ends at 1 for a reason: the most likely texts of a model are not its
best but endless repetitions, and if more likelihood always paid, these would be the optimum. So
there is nothing to gain from being more predictable than people are. But a model that begins as
likely as people are begins near 1 and hardly sees R0 move. The paper has R0 of the log-likelihood
itself and does not say how it is bounded: the logistic curve is monotone in m, begins near 1/2 and
pays for more likelihood, too, so that only the KL penalty holds repetition back.

All of it stays on the client: the sentiment model and the answers know its reviews, and h is a
number about them. Where λ_k is 0, nobody is asked and nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.algorithms.fedrlhf.text.settings import Settings
from fedrl.core.types import Metrics
from fedrl.envs.reviews import Review
from fedrl.feedback import preference_model, sentiment
from fedrl.feedback.preference_model import Comparison
from fedrl.feedback.sentiment import TextRewardModel

HUMAN = 256
"""Training reviews whose likelihood is the measure of R0."""
NARROWEST = 0.1
"""Deviation of log-likelihoods that is assumed at least: of one review there is none."""

Floats = NDArray[np.float64]


class TextRewards(NamedTuple):
    """Per text [n]; `sentiment` is NaN where λ is 0."""

    reward: Floats
    sentiment: Floats
    intrinsic: Floats

    def means(self) -> Metrics:
        """Without what nobody judged."""
        known = {name: values[np.isfinite(values)] for name, values in self._asdict().items()}
        return {name: float(values.mean()) for name, values in known.items() if len(values)}


class TextReward(NamedTuple):
    """One client's: its λ, the likelihood of its people's texts, and its R_sentiment."""

    weight: float
    human: float  # h
    model: TextRewardModel | None  # None where λ is 0
    spread: float | None = None  # s, where R0 is of the log-likelihood

    def rewards(self, texts: Sequence[str], likelihood: Floats) -> TextRewards:
        """`likelihood` is the mean log-probability under the reference, m."""
        if self.spread is None:
            intrinsic = fluency(likelihood, self.human)
        else:
            intrinsic = bounded_loglikelihood(likelihood, self.human, self.spread)
        if self.model is None:
            return TextRewards(intrinsic, np.full(len(texts), np.nan), intrinsic)
        felt = np.asarray(self.model.score(texts), np.float64)
        return TextRewards(self.weight * felt + (1 - self.weight) * intrinsic, felt, intrinsic)


def fluency(likelihood: Floats, human: float) -> Floats:
    """R0 as a ratio of perplexities, at most 1."""
    return np.minimum(1.0, np.exp(np.asarray(likelihood, np.float64) - human))


def bounded_loglikelihood(likelihood: Floats, human: float, spread: float) -> Floats:
    """R0 as the log-likelihood on a logistic curve: 1/2 at people's mean, its unit their spread."""
    units = (np.asarray(likelihood, np.float64) - human) / spread
    return 0.5 * (1 + np.tanh(0.5 * units))


def rewards_by_owner(
    by_client: Mapping[int, TextReward],
    owners: Sequence[int],
    texts: Sequence[str],
    likelihood: Floats,
) -> TextRewards:
    """Of several clients' texts, each by its owner's reward."""
    whole = TextRewards(*(np.empty(len(texts)) for _ in TextRewards._fields))
    whose = np.asarray(owners)
    for owner in dict.fromkeys(owners):
        rows = np.flatnonzero(whose == owner)
        own = by_client[owner].rewards([texts[i] for i in rows.tolist()], likelihood[rows])
        for column, part in zip(whole, own, strict=True):
            column[rows] = part
    return whole


class ClientRewards:
    """The clients' rewards. What only depends on a client's reviews is made once in a process.

    `likelihood` gives m of what people wrote in texts.
    """

    def __init__(
        self,
        settings: Settings,
        weights: Sequence[float],
        reviews: Sequence[Sequence[Review]],
        likelihood: Callable[[Sequence[str]], Floats],
    ) -> None:
        self.settings, self.weights, self.reviews = settings, weights, reviews
        self.likelihood = likelihood
        self._humans: dict[int, tuple[float, float]] = {}  # mean and deviation of m
        self._fitted: dict[int, TextRewardModel] = {}
        self._answered: dict[
            int, tuple[Comparison, ...]
        ] = {}  # what a client's model was fitted to
        self._classifier: TextRewardModel | None = None

    def of(self, owner: int) -> TextReward:
        """This client's as it stands now: a person may have said more since the last round."""
        if owner not in self._humans:
            texts = [review.text for review in self.reviews[owner][:HUMAN]]
            measured = self.likelihood(texts)
            self._humans[owner] = float(measured.mean()), max(float(measured.std()), NARROWEST)
        weight, (human, spread) = self.weights[owner], self._humans[owner]
        model = self._model(owner) if weight else None
        by_ratio = self.settings.intrinsic == "fluency"
        return TextReward(weight, human, model, None if by_ratio else spread)

    def _model(self, owner: int) -> TextRewardModel:
        if self.settings.feedback != "sentiment":
            return self._preference_model(owner)
        if self.settings.sentiment != "builtin":  # public, and the same for all clients
            return self.classifier
        if owner not in self._fitted:
            texts = [review.text for review in self.reviews[owner]]
            labels = [review.label for review in self.reviews[owner]]
            self._fitted[owner] = sentiment.fit(texts, labels)
        return self._fitted[owner]

    @property
    def classifier(self) -> TextRewardModel:
        """The model of `algorithm.sentiment`, loaded when it is first needed."""
        if self._classifier is None:
            from fedrl.feedback import hf_sentiment

            self._classifier = hf_sentiment.load(self.settings.sentiment, self.settings.device)
        return self._classifier

    def _preference_model(self, owner: int) -> TextRewardModel:
        """By a person's answers; 0.5 for everything while there are none."""
        if self.settings.feedback == "logged":
            preference_queries.require_folder(self.settings.feedback_folder, owner)
        answered = preference_queries.answered(self.settings.feedback_folder, owner)
        if self._answered.get(owner) != answered:
            self._fitted[owner] = preference_model.fit(answered)
            self._answered[owner] = answered
        return self._fitted[owner]
