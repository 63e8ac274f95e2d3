"""The interface of a world of ratings: what each client's user gave to which movies.

A world that has these four plugs into FedRLHF (`algorithms.fedrlhf.ratings`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrl.core.types import UserError
from fedrl.datasets.movielens import Movie

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

HIGH = 4.0
"""Stars from which a rating is high."""


class UserRatings(NamedTuple):
    """One user's ratings: `train` and `held` are places in the other arrays."""

    user: int  # raw id
    movie: Ints  # [n], places in the catalogue
    rating: Floats  # [n], stars
    appeal: Floats  # [n], R0 of "high", in [-1, 1]; "not high" is paid its negative
    train: Ints
    held: Ints


class RatingsWorld(Protocol):
    """`ratings[k]` are client k's; `movies` and `genres` [M, G] the catalogue that all know."""

    clients: int
    movies: tuple[Movie, ...]
    genres: Floats
    ratings: tuple[UserRatings, ...]


def check_split(ratings: UserRatings, movies: tuple[Movie, ...]) -> None:
    """Nothing that is evaluated may have been trained on, not even rated twice."""
    train, held = ratings.train, ratings.held
    both = set(ratings.movie[train].tolist()) & set(ratings.movie[held].tolist())
    if both or np.intersect1d(train, held).size:
        name = movies[min(both)].id if both else "of one row"
        raise UserError(
            f"user {ratings.user}'s rating of movie {name} is both trained on and held out; "
            "is it in the ratings twice?"
        )
