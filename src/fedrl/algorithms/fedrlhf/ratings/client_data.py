"""What one client of a rating federation holds: its users' movies, split, and what R0 pays there.

Usually that is one user. A centralized client holds everybody's ratings, and an organisation those
of its own users: the lists of users and movies are then longer; nothing else differs. Users are
numbered as the network that all share has rows for them, or, where their rows are private, by their
places among the client's own. True ratings are kept apart (`stars`,
`States.rating`): of those that are trained on only a simulated person and `reward = "labels"` read
the values.

Who holds row r of an embedding table, H_r, can be told to a server that only adds up: every client
sends a mark where it holds a row and 0 elsewhere, and with clients' weights w_i

    Σ_i w_i Δ_i,r / Σ_i w_i  over  Σ_i w_i [i ∈ H_r] / Σ_i w_i   =   the mean of Δ_i,r over H_r
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedrl.core.agreement import digest
from fedrl.datasets.movielens import Movie
from fedrl.envs.ratings import (
    OwnRatings,
    RatingsFolder,
    RatingsWorld,
    UserRatings,
    World,
    check_split,
)
from fedrl.feedback.rating_kernels import Examples, Ints, Single

MARK = 2.0**-10
"""Of a row that is held. Small beside changes, which are what a bound on the whole update
(`privacy.clip`) is for; far above the grid of a secure sum; a power of two: marks round nothing."""

FILED = re.compile(r"^([^()]+), (The|An?|Les?|La|Las|Los|El|Il|Der|Die|Das)(?= \(.*\d{4}\)$)")

Part = Literal["train", "held", "all"]


class States(NamedTuple):
    """Some states of one user, numbered as the server numbers them, and their true ratings."""

    examples: Examples
    rating: Single
    appeal: Single


class Person(NamedTuple):
    """A user of a client: what people's answers are filed under, and the ratings."""

    name: str
    owner: int
    ratings: UserRatings


class ClientRatings(NamedTuple):
    """`train` is numbered by rows of `users` and `movies`, the client's own lists."""

    users: Ints  # [U], their rows in the network
    movies: Ints  # [M], places in the catalogue
    train: Examples  # [n]
    appeal: Single  # [n], R0 of "high"
    weight: Single  # [n], λ of the example's user
    stars: Single  # [n], true ratings
    catalogue: tuple[Movie, ...]
    people: tuple[Person, ...]  # [U]

    def key(self, place: int) -> str:
        """A movie's raw id, by which people and logs know it."""
        return str(self._movie(place).id)

    def text(self, place: int) -> str:
        """A movie as a person reads it."""
        return shown_text(self._movie(place))

    def _movie(self, place: int) -> Movie:
        return self.catalogue[int(self.movies[self.train.movie[place]])]


def shown_text(movie: Movie) -> str:
    """Title and genres. MovieLens files "Matrix, The (1999)" under M; people know "The Matrix"."""
    title = FILED.sub(r"\2 \1", movie.title, count=1)
    return f"{title}: {', '.join(movie.genres)}" if movie.genres else title


def client_ratings(
    world: World,
    owners: Sequence[int],
    weights: Sequence[float],
    private: bool = False,
) -> ClientRatings:
    """Of these owners' training ratings; `weights` are all owners' λ."""
    people = [person for owner in owners for person in people_of(world, owner)]
    users = [person.ratings for person in people]
    known = catalogue(world, owners[0])
    for user in users:
        check_split(user, known.movies)
    movie = np.concatenate([user.movie[user.train] for user in users])
    sizes = [len(user.train) for user in users]
    movies, row = np.unique(movie, return_inverse=True)
    lam = np.array([weights[person.owner] for person in people], np.float32)
    return ClientRatings(
        np.arange(len(people)) if private else np.array(owners, np.int64),
        movies,
        Examples(
            np.repeat(np.arange(len(users)), sizes), row.astype(np.int64), known.genres[movie]
        ),
        np.concatenate([user.appeal[user.train] for user in users]),
        np.repeat(lam, sizes),
        np.concatenate([user.rating[user.train] for user in users]),
        known.movies,
        tuple(people),
    )


def people_of(world: World, owner: int) -> list[Person]:
    """A client's users: one that was dealt to it, or all that its folder holds."""
    if not isinstance(world, OwnRatings):
        return [Person(str(owner), owner, world.ratings[owner])]
    users = world.of(owner).users
    alone = len(users) == 1
    return [Person(str(owner) if alone else f"{owner}-{user.user}", owner, user) for user in users]


def catalogue(world: World, owner: int | None = None) -> RatingsFolder:
    """The movies as this owner knows them, or as the coordinator does."""
    if isinstance(world, OwnRatings):
        return world.plain if owner is None else world.of(owner)
    return RatingsFolder(world.movies, world.genres, ())


def movies_digest(movies: Sequence[Movie]) -> str:
    """Titles may be anybody's own."""
    return digest(f"{movie.id}:{'|'.join(movie.genres)}" for movie in movies)


def row_marks(rows: Ints, count: int) -> Single:
    """[count]: which rows of a table a client holds."""
    marks = np.zeros(count, np.float32)
    marks[rows] = MARK
    return marks


def mean_over_holders(mean: Single, held: Single, least: float) -> Single:
    """The mean over a row's holders [R, D], from that over all clients and the mean mark [R].

    A row without a holder stays as it is. `least` is the smallest share of the weights that an
    honest holder can have: who marks a row by less moves it no farther for that.
    """
    share = np.maximum(np.asarray(held, np.float64) / MARK, least)
    return np.asarray(mean / share[:, None], np.float32)


def user_states(world: RatingsWorld, owner: int, part: Part) -> States:
    """One user's states that are trained on (`train`), held out (`held`), or all of them."""
    return states(world.ratings[owner], owner, world.genres, part)


def states(user: UserRatings, row: int, genres: Single, part: Part) -> States:
    """The same of a user with this row in the network."""
    rows = {"train": user.train, "held": user.held, "all": np.arange(len(user.movie))}[part]
    movie = user.movie[rows]
    examples = Examples(np.full(len(rows), row, np.int64), movie, genres[movie])
    return States(examples, user.rating[rows], user.appeal[rows])
