"""A simulated person: the paper's rules on true ratings with Gaussian noise (appendix D.1.2).

    rate      −1 if the score shown is more than half a star above the noisy true rating, +1 if it
              is more than half a star below it, else 0
    compare   the true order of the two noisy ratings where the model's order differs from it, else
              0; as everywhere in `records`, −1 is for the first and +1 for the second

The person knows the items they were given, by the client's own keys, and no others: a client gives
it the ratings that it trains on, so that a question about anything held out is an error. Scores are
in stars, as ratings are. (The paper writes +1 where the first is preferred.)

By the paper's rule a comparison says something only where the model's order seems wrong. Where the
model is right it is noise alone that makes it seem so: the better the model, the larger the share
of noise among the comparisons that teach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrl.core.seeding import generator
from fedrl.feedback.records import Answer, Question

TOLERANCE = 0.5
"""Stars within which a score is right."""


@dataclass(frozen=True)
class Simulated:
    """A `Source` with an opinion, `stars` by key, and `noise` (a standard deviation) in telling."""

    stars: Mapping[str, float]
    noise: float

    def answers(self, questions: Sequence[Question], seed: int) -> list[Answer]:
        return [Answer(one.id, self._answer(one, seed)) for one in questions]

    def _answer(self, question: Question, seed: int) -> float:
        # By the question's own name: what else is asked beside it changes nothing.
        random = generator(seed, f"feedback/{question.id}")
        felt = [
            self.stars[key] + self.noise * float(random.standard_normal()) for key in question.keys
        ]
        if question.kind == "rate":
            return direct(question.scores[0], felt[0])
        return comparative(question.scores, felt)


def direct(score: float, rating: float) -> float:
    if score > rating + TOLERANCE:
        return -1.0
    return 1.0 if score < rating - TOLERANCE else 0.0


def comparative(scores: Sequence[float], ratings: Sequence[float]) -> float:
    true = float(np.sign(ratings[1] - ratings[0]))
    predicted = float(np.sign(scores[1] - scores[0]))
    return true if true != predicted else 0.0
