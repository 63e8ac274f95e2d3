"""What a living person's answers change: a client's recommendations with them and without.

Both are of one round and of the movies that the person has not rated. `without` is the policy that
the client would have learned from the same start had nobody answered, so that the difference is the
answers' and nothing else's. It is written into the person's private folder (`feedback.effect`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedrl.algorithms.fedrlhf.ratings import metrics
from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings, shown_text
from fedrl.algorithms.fedrlhf.ratings.rating_queries import QueryMemory
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core.types import Tensors
from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation
from fedrl.feedback.rating_kernels import Examples, Single
from fedrl.feedback.store import Folder, client_folder

BEST = 10
Policy = Tensors
High = Callable[[Policy, Examples], np.ndarray]


def recommendations(
    data: ClientRatings, policy: Policy, high: High, genres: Single
) -> tuple[Recommendation, ...]:
    """The best movies of those that the client's person has not rated, with their stars."""
    (row,) = data.users.tolist()
    new = _new(data)
    scores = high(policy, Examples(np.full(len(new), row, np.int64), new, genres[new]))
    best = np.argsort(-scores, kind="stable")[:BEST]
    stars = np.round(metrics.stars(scores).astype(np.float64), 2)
    return tuple(
        Recommendation(
            shown_text(data.catalogue[int(new[place])]),
            float(stars[place]),
            sharing=int((stars == stars[place]).sum()),
        )
        for place in best.tolist()
    )


def _new(data: ClientRatings) -> np.ndarray:
    """Movies that the client's person has not rated."""
    (person,) = data.people
    return np.setdiff1d(np.arange(len(data.catalogue)), person.ratings.movie)


def write_effect(
    settings: Settings,
    data: ClientRatings,
    high: High,
    genres: Single,
    memory: QueryMemory,
    round: int,
    without: Callable[[], Policy],
    with_answers: Policy,
) -> None:
    """Where a person answers: tell what came of it. `without` is only computed there."""
    if settings.feedback != "live" or not data.weight.any():
        return
    before, after = (
        recommendations(data, policy, high, genres) for policy in (without(), with_answers)
    )
    folder = Folder(client_folder(Path(settings.feedback_folder), int(data.people[0].name)))
    found = Effect("films", len(memory.answered), before, after, round=round, films=len(_new(data)))
    effect.write(folder, found, memory.given)
