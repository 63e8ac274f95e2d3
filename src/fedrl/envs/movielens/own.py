"""Ratings that clients bring: an organisation's folder with its own users, all of them.

    north/movielens/ratings.csv    userId,movieId,rating,timestamp: this organisation's users alone
    north/movielens/movies.csv     movieId,title,genres: ids and genres as everybody's, any titles

Nothing is dealt: all users of a folder are its client's, whatever their ids are elsewhere, and no
rating is left out. R0's popularity is of the same folder: how often the client's other users
watched a movie, in what they train on; a client with one user knows none. Nothing is read of other
clients' folders, nor of the coordinator's, which a node does not have.

Movies are numbered by their ids, so the lines of movies.csv may come in any order; which ids there
are, and their genres, must agree. Of each user `world.held_out` is held out, by the run's seed and
the user's place in the folder. The coordinator's `public` needs movies.csv, and ratings.csv where
the network is evaluated on it: then on all of its ratings, nobody having trained on any.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrl.core.types import UserError
from fedrl.datasets import movielens
from fedrl.datasets.movielens import Ratings
from fedrl.envs.movielens.world import Settings, appeal, genre_table, split
from fedrl.envs.ratings import Floats, Ints, OwnRatings, RatingsFolder, UserRatings
from fedrl.partition import OwnFolders
from fedrl.partition import Settings as Partition

LOWEST, HIGHEST = 0.5, 5.0
"""Stars."""


def own_ratings(
    settings: Settings, seed: int, folders: OwnFolders, chosen: Partition
) -> OwnRatings:
    def plain() -> RatingsFolder:
        if not folders.public.is_dir():
            return client(0)
        with folders.naming():
            return open_public(folders.public / settings.source, chosen.held_out == "public")

    def client(number: int) -> RatingsFolder:
        with folders.naming(number):
            return open_folder(settings, folders.of(number) / settings.source, seed)

    return OwnRatings(folders.clients, plain, client, float(chosen.size), chosen.held_out)


def open_folder(settings: Settings, folder: Path, seed: int) -> RatingsFolder:
    """A client's: `movie` and the like by users, each split."""
    table = _checked(folder, movielens.load(folder, name=""))
    genres = _genres(table)
    rows = _by_user(table.user)
    parts = [split(settings, table.timestamp[own], seed, user) for user, own in enumerate(rows)]
    trained = np.concatenate([own[train] for own, (train, _) in zip(rows, parts, strict=True)])
    watched = Watched(table.movie[trained], genres)

    def of_user(own: Ints, train: Ints, held: Ints) -> UserRatings:
        movie = table.movie[own]
        r0 = watched.appeal(movie, movie[train])
        return UserRatings(int(table.user[own[0]]), movie, _stars(table, own), r0, train, held)

    users = tuple(of_user(own, *part) for own, part in zip(rows, parts, strict=True))
    return RatingsFolder(table.movies, genres, users)


def open_public(folder: Path, rated: bool) -> RatingsFolder:
    """The coordinator's: everything is held out, and R0 is by what all of its users watched."""
    if not rated:
        empty = np.zeros(0)
        table = Ratings(empty, empty, empty, empty, movielens.load_movies(folder, name=""))
        table = _checked(folder, table)
        return RatingsFolder(table.movies, _genres(table), ())
    table = _checked(folder, movielens.load(folder, name=""))
    genres, rows = _genres(table), _by_user(table.user)
    watched, none = Watched(table.movie, genres), np.zeros(0, np.int64)
    users = tuple(
        UserRatings(
            int(table.user[own[0]]), table.movie[own], _stars(table, own),
            watched.appeal(table.movie[own], table.movie[own]), none, np.arange(len(own)),
        )
        for own in rows
    )  # fmt: skip
    return RatingsFolder(table.movies, genres, users)


class Watched:
    """How often each movie was watched by an organisation's users, and, for one of them, by the
    others."""

    def __init__(self, movie: Ints, genres: Floats) -> None:
        self.genres, self.rows = genres, len(movie)
        self.count = np.bincount(movie, minlength=len(genres))
        self.sums = genres[movie].sum(0, dtype=np.float64)
        # views[c]: how many views are of movies that were watched c times
        self.views = np.bincount(self.count, self.count)

    def appeal(self, movie: Ints, known: Ints) -> Floats:
        """[-1, 1] for each movie, for the user who watched `known`, which are counted here."""
        own = np.bincount(known, minlength=len(self.genres))
        others = self.rows - len(known)
        fame, share = 0.0, np.full(self.genres.shape[1], 0.5)
        if others:
            mine = np.unique(known)
            then = self.count[mine]
            now = then - own[mine]
            views = self.views.copy()
            np.subtract.at(views, then, then)
            np.add.at(views, now, now)
            # Ranked among what is watched, as in `world`: half of what people watch is above 0.
            below = np.concatenate([[0.0], np.cumsum(views)])
            count = (self.count - own)[movie]
            fame = (below[count] + below[count + 1]) / others - 1
            share = (self.sums - self.genres[known].sum(0, dtype=np.float64)) / others
        return appeal(fame, self.genres[movie], self.genres[known].mean(0), share)


def _checked(folder: Path, table: Ratings) -> Ratings:
    """Movies by their ids, and in `movie` their places; what cannot be is said."""
    movies = tuple(sorted(table.movies))
    ids = np.array([movie.id for movie in movies], np.int64)
    if len(twice := ids[1:][ids[1:] == ids[:-1]]):
        raise UserError(f"{folder}: movie {twice[0]} is in movies.csv twice")
    unknown = ~np.isin(table.movie, ids)
    if unknown.any():
        raise UserError(
            f"{folder}: movie {int(table.movie[unknown][0])} is rated but not in movies.csv"
        )
    wrong = ~((table.rating >= LOWEST) & (table.rating <= HIGHEST))
    if wrong.any():
        raise UserError(
            f"{folder}: a rating is {table.rating[wrong][0]:g}; stars are from {LOWEST} to "
            f"{HIGHEST:g}"
        )
    return table._replace(movie=np.searchsorted(ids, table.movie), movies=movies)


def _genres(table: Ratings) -> Floats:
    names = sorted({genre for movie in table.movies for genre in movie.genres})
    return genre_table(table.movies, names)


def _by_user(user: np.ndarray) -> list[Ints]:
    """The rows of each user, in the order of users and of the file."""
    order = np.argsort(user, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(user[order])) + 1)


def _stars(table: Ratings, rows: Ints) -> Floats:
    return table.rating[rows].astype(np.float32)
