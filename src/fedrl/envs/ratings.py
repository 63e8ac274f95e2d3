"""The interface of a world of ratings: what each client's user gave to which movies.

A world that has the four of `RatingsWorld` plugs into FedRLHF (`algorithms.fedrlhf.ratings`). Where
clients bring ratings of their own (`partition.strategy = "own"`) it is an `OwnRatings`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrl.core.lazy_sequence import LazySequence
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


class RatingsFolder(NamedTuple):
    """What one folder holds: the catalogue, and the ratings of all its users."""

    movies: tuple[Movie, ...]
    genres: Floats
    users: tuple[UserRatings, ...]


class OwnRatings:
    """Clients with users of their own, any number each; a client's folder is opened when it is
    first asked for, on a node one, by the driver of nodes none.

    `plain` opens the folder that nobody owns (where there is none, any), `open` a client's.
    `heaviest` is the most that a client can weigh; `held_out` says whether the network is evaluated
    on nobody's ratings or on those that each client holds out.
    """

    def __init__(
        self,
        clients: int,
        plain: Callable[[], RatingsFolder],
        open: Callable[[int], RatingsFolder],
        heaviest: float,
        held_out: Literal["public", "clients"],
    ) -> None:
        self.clients, self.heaviest, self.held_out = clients, heaviest, held_out
        self._plain = plain
        self._folders = LazySequence(clients, open)

    def of(self, client: int) -> RatingsFolder:
        return self._folders[client]

    @cached_property
    def plain(self) -> RatingsFolder:
        return self._plain()


World = RatingsWorld | OwnRatings


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
