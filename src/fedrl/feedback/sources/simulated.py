"""A simulated person: the paper's rules on true ratings with Gaussian noise (appendix D.1.2).

    rate      −1 if the score shown is more than half a star above the noisy true rating, +1 if it
              is more than half a star below it, else 0
    compare   the true order of the two noisy ratings where the model's order differs from it, else
              0; as everywhere in `queries`, −1 is for the first and +1 for the second

The person knows the items they were given, by the client's own keys, and no others: a client gives
it the ratings that it trains on, so that a query about anything held out is an error. Scores are
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
from fedrl.feedback.queries import Answer, Query

TOLERANCE = 0.5
"""Stars within which a score is right."""


@dataclass(frozen=True)
class SimulatedPerson:
    """A `FeedbackSource` with an opinion, `stars` by key; `noise` is a standard deviation."""

    stars: Mapping[str, float]
    noise: float

    def answers(self, queries: Sequence[Query], seed: int) -> list[Answer]:
        return [Answer(query.id, self._answer(query, seed)) for query in queries]

    def _answer(self, query: Query, seed: int) -> float:
        # By the query's own name: what else is asked beside it changes nothing.
        random = generator(seed, f"feedback/{query.id}")
        ratings = [
            self.stars[key] + self.noise * float(random.standard_normal()) for key in query.keys
        ]
        if query.kind == "rate":
            return rating_answer(query.scores[0], ratings[0])
        return preference_answer(query.scores, ratings)


def rating_answer(score: float, rating: float) -> float:
    if score > rating + TOLERANCE:
        return -1.0
    return 1.0 if score < rating - TOLERANCE else 0.0


def preference_answer(scores: Sequence[float], ratings: Sequence[float]) -> float:
    true = float(np.sign(ratings[1] - ratings[0]))
    predicted = float(np.sign(scores[1] - scores[0]))
    return true if true != predicted else 0.0
