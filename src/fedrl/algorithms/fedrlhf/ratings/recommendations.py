"""What a living person's answers change: a client's recommendations with them and without.

Both are of one round and of the movies that the person has not rated. `without` is the policy that
the client would have learned from the same start had nobody answered, so that the difference is the
answers' and nothing else's. It is written into the person's private folder (`feedback.effect`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

BEST, FALLEN = 10, 5
Policy = Tensors
High = Callable[[Policy, Examples], np.ndarray]


def stars_of_new(data: ClientRatings, policy: Policy, high: High, genres: Single) -> np.ndarray:
    """Of the movies that the client's person has not rated, as a person reads them."""
    (row,) = data.users.tolist()
    new = _new(data)
    scores = high(policy, Examples(np.full(len(new), row, np.int64), new, genres[new]))
    return np.round(metrics.stars(scores).astype(np.float64), 2)


def recommendations(
    data: ClientRatings, stars: np.ndarray, other: np.ndarray, first: np.ndarray | None
) -> tuple[Recommendation, ...]:
    """The best of these movies."""
    best = np.argsort(-stars, kind="stable")[:BEST]
    same = [int((stars == stars[place]).sum()) for place in best.tolist()]
    return _listed(data, best, stars, same, other, first)


def fallen(
    data: ClientRatings, stars: np.ndarray, other: np.ndarray, first: np.ndarray
) -> tuple[Recommendation, ...]:
    """The movies whose stars fell most since the `first` ones."""
    moved = np.round(stars - first, 2)
    most = [
        place for place in np.argsort(moved, kind="stable")[:FALLEN].tolist() if moved[place] < 0
    ]
    same = [int((moved == moved[place]).sum()) for place in most]
    return _listed(data, np.array(most, np.int64), stars, same, other, first)


def _listed(
    data: ClientRatings, places: np.ndarray, stars: np.ndarray, same: Sequence[int],
    other: np.ndarray, first: np.ndarray | None,
) -> tuple[Recommendation, ...]:  # fmt: skip
    new = _new(data)
    return tuple(
        Recommendation(
            shown_text(data.catalogue[int(new[place])]),
            float(stars[place]),
            sharing=sharing,
            first=None if first is None else float(first[place]),
            other=float(other[place]),
        )
        for place, sharing in zip(places.tolist(), same, strict=True)
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
    folder = Folder(client_folder(Path(settings.feedback_folder), int(data.people[0].name)))
    before, after = (
        stars_of_new(data, policy, high, genres) for policy in (without(), with_answers)
    )
    known = np.array(effect.beginning(folder), np.float64)
    first = known if len(known) == len(after) else None
    found = Effect(
        "films", len(memory.answered), recommendations(data, before, after, first),
        recommendations(data, after, before, first), round=round, films=len(after),
        fell=() if first is None else fallen(data, after, before, first),
        stars=tuple(after.tolist()),
    )  # fmt: skip
    effect.write(folder, found, memory.given)
