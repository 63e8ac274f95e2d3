"""MovieLens as a contextual bandit for federations: every client is one user with their ratings.

    state    a movie that this user rated: (user, movie, genres)
    action   0 "not high" or 1 "high": would they give it four stars or more?
    R0       ± appeal(user, movie): what watching alone says, see below

The state is drawn from the user's own ratings and there is no next one, so a step is an episode.
Some of a user's ratings are held out for evaluation; a run that would also train on one of them is
refused when it is built (`ratings.check_split`).

What is an honest intrinsic reward? Were it the true rating, every step would show the label, and
reinforcement learning would be supervised learning under another name. So R0 is what a service sees
without asking anybody: how many others (users who are no clients) watched the movie, and how often
this user watches its genres compared with those others. No rating's value enters it, and of the
clients' held-out movies nothing at all. It agrees with taste a little (a rank correlation of about
0.2 with the genuine ratings); to learn more, a client has to ask its person (`feedback/`).

Movies and users are numbered by their place in the catalogue and in the list of clients. Raw ids
appear in two places only: in the catalogue itself and as the keys of queries to a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrl.core.limits import not_negative
from fedrl.core.seeding import generator
from fedrl.core.types import FilePath, UserError
from fedrl.datasets import movielens
from fedrl.datasets.fetch import source_folder
from fedrl.datasets.movielens import Movie, Ratings
from fedrl.envs.movielens.generate import generate
from fedrl.envs.ratings import Floats, Ints, OwnRatings, UserRatings
from fedrl.partition import OwnFolders
from fedrl.partition import Settings as Partition


@dataclass(frozen=True)
class Settings:
    name: Literal["movielens"] = "movielens"
    # "generated", "movielens" (what `fedrl data movielens` gets), or a folder with its files
    source: FilePath = "generated"
    # share of each user's ratings that is only evaluated on; 0, none, where clients bring their own
    held_out: float = 0.2
    # which ones: "random" by the run's seed, or the latest ones ("time")
    split: Literal["random", "time"] = "random"
    # users with fewer ratings are no clients; where clients bring their own, all users count
    least: int = 20
    # generated users, of whom the run's seed makes some the clients
    users: int = 200
    # generated movies
    movies: int = 500
    # generated ratings per user, on average
    ratings: int = 80
    # which family of generated ratings; runs with other seeds still draw from the same
    family: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise UserError(f"world.held_out is {self.held_out}; it is a share between 0 and 1")
        for key, least in (("least", 2), ("users", 2), ("movies", 10), ("ratings", 4)):
            if getattr(self, key) < least:
                raise UserError(f"world.{key} is {getattr(self, key)}; it must be at least {least}")
        not_negative(self, "world.", "family")


class MovieLens:
    """A `RatingsWorld`: every client is a user of MovieLens."""

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        if not settings.held_out:
            raise UserError(f"world.held_out is {settings.held_out}; it is a share above 0 here")
        self.settings, self.clients = settings, clients
        table = _load(settings)
        self.movies: tuple[Movie, ...] = table.movies
        place = {movie.id: i for i, movie in enumerate(self.movies)}
        self.genre_names = sorted({genre for movie in self.movies for genre in movie.genres})
        self.genres = genre_table(self.movies, self.genre_names)
        unknown = set(table.movie.tolist()) - set(place)
        if unknown:
            raise UserError(f"movie {min(unknown)} is rated but not in the list of movies")
        movie = np.array([place[i] for i in table.movie.tolist()], np.int64)
        chosen = _choose(table, clients, settings.least, seed)
        others = ~np.isin(table.user, chosen)
        watched = _Watching(movie[others], self.genres)

        def of_user(client: int, user: int) -> UserRatings:
            rows = np.flatnonzero(table.user == user)
            train, held = split(settings, table.timestamp[rows], seed, client)
            rated, stars = movie[rows], table.rating[rows].astype(np.float32)
            return UserRatings(user, rated, stars, watched.appeal(rated, rated[train]), train, held)

        self.ratings = tuple(of_user(client, user) for client, user in enumerate(chosen))


class _Watching:
    """What the users who are no clients watch, and what that says of a client's movies."""

    def __init__(self, movie: Ints, genres: Floats) -> None:
        self.genres = genres
        self.count = np.bincount(movie, minlength=len(genres))
        # Ranked among what is watched, not among all movies: half of what people watch is above 0.
        self.ranked = np.sort(self.count[movie])
        self.share = genres[movie].mean(0) if movie.size else np.full(genres.shape[1], 0.5)

    def appeal(self, movie: Ints, known: Ints) -> Floats:
        """[-1, 1] for each movie, for somebody of whom it is known that they watched `known`."""
        below = np.searchsorted(self.ranked, self.count[movie], "left")
        above = np.searchsorted(self.ranked, self.count[movie], "right")
        fame = (below + above) / max(len(self.ranked), 1) - 1 if self.ranked.size else 0.0
        return appeal(fame, self.genres[movie], self.genres[known].mean(0), self.share)


def appeal(fame: np.ndarray | float, has: Floats, own: np.ndarray, share: np.ndarray) -> Floats:
    """R0 of "high" [n] for movies with these genres [n, G]: half of it how often others watch them,
    half how often somebody watches their genres, with shares `own`, where others have `share`."""
    lift = np.log((own + 0.02) / (share + 0.02))  # of a genre; 0.02 tames rare ones
    fondness = np.tanh(has @ lift / np.maximum(has.sum(1), 1))
    return (0.5 * fame + 0.5 * fondness).astype(np.float32)


def _load(settings: Settings) -> Ratings:
    if settings.source == "generated":
        return generate(settings.users, settings.movies, settings.ratings, settings.family)
    return movielens.load(source_folder(settings.source, "movielens"))


def genre_table(movies: tuple[Movie, ...], names: list[str]) -> Floats:
    """Row i is movie i of the catalogue, whatever its id."""
    column = {name: j for j, name in enumerate(names)}
    table = np.zeros((len(movies), len(names)), np.float32)
    for i, movie in enumerate(movies):
        for genre in movie.genres:
            table[i, column[genre]] = 1.0
    return table


def _choose(ratings: Ratings, clients: int, least: int, seed: int) -> list[int]:
    """The clients' raw ids; more clients of one seed begin with the same ones."""
    users, counts = np.unique(ratings.user, return_counts=True)
    able = users[counts >= least]
    if len(able) < clients:
        raise UserError(
            f"federation.clients is {clients}, but only {len(able)} users have world.least = "
            f"{least} ratings or more"
        )
    return generator(seed, "movielens/users").permutation(able)[:clients].tolist()


def split(settings: Settings, timestamp: np.ndarray, seed: int, user: int) -> tuple[Ints, Ints]:
    """Places of the ratings that a user trains on, and of those that are held out: at least one,
    unless there is but one or the share is 0."""
    count = len(timestamp)
    order = np.argsort(timestamp, kind="stable")
    if settings.split == "random":
        order = generator(seed, "movielens/split", client=user).permutation(count)
    most = count - 1 if settings.held_out else count
    kept = max(min(round((1 - settings.held_out) * count), most), 1)
    return np.sort(order[:kept]), np.sort(order[kept:])


World = MovieLens
"""What a recipe builds: users that are dealt out to clients."""


def OwnWorld(
    settings: Settings, clients: int, seed: int, folders: OwnFolders, chosen: Partition
) -> OwnRatings:
    """The same of clients with `folders` of their own."""
    from fedrl.envs.movielens.own import own_ratings

    return own_ratings(settings, seed, folders, chosen)
