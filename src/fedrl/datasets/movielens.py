"""MovieLens latest-small: ratings as arrays, movies with titles and genres.

Read from `ratings.csv.gz` and `movies.csv.gz`, from the published folder `ml-latest-small/`, or
from the published archive.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrl.datasets.missing_data import missing, readable

_NAME = "ml-latest-small"
_NO_GENRES = "(no genres listed)"


class Movie(NamedTuple):
    id: int
    title: str  # with its year in brackets, where GroupLens knows it
    genres: tuple[str, ...]


class Ratings(NamedTuple):
    """Row i: `user[i]` gave `movie[i]` (a movie's id) `rating[i]` stars at `timestamp[i]`."""

    user: np.ndarray  # [R] int64
    movie: np.ndarray  # [R] int64
    rating: np.ndarray  # [R] float64, 0.5 to 5.0 in halves
    timestamp: np.ndarray  # [R] int64, seconds since 1970 in UTC
    movies: tuple[Movie, ...]


def load(folder: Path, name: str = "movielens") -> Ratings:
    """`name` is empty for data of one's own, of which nothing can be got anew."""
    path, text = _table(folder, name, "ratings", "userId,movieId,rating,timestamp")
    with readable(name, path):
        if not text.strip():
            raise ValueError("it holds no ratings")
        rows = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2, dtype=np.float64)
        if rows.shape[1:] != (4,):
            raise ValueError(f"{rows.shape[1:]} columns instead of 4")
    user, movie, timestamp = (rows[:, i].astype(np.int64) for i in (0, 1, 3))
    return Ratings(user, movie, rows[:, 2], timestamp, load_movies(folder, name))


def load_movies(folder: Path, name: str = "movielens") -> tuple[Movie, ...]:
    path, text = _table(folder, name, "movies", "movieId,title,genres")
    with readable(name, path):
        return tuple(
            Movie(int(id), title, () if genres == _NO_GENRES else tuple(genres.split("|")))
            for id, title, genres in csv.reader(io.StringIO(text))
        )


def _table(folder: Path, name: str, table: str, header: str) -> tuple[Path, str]:
    """The file that a table was found in, and its text after the header."""
    path = _find(folder, name, table)
    with readable(name, path):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                data = archive.read(f"{_NAME}/{table}.csv")
        elif path.suffix == ".gz":
            data = gzip.decompress(path.read_bytes())
        else:
            data = path.read_bytes()
        first, _, rest = data.decode("utf-8").partition("\n")
        if first.rstrip("\r") != header:
            raise ValueError(f"its first line is not {header!r}")
        return path, rest


def _find(folder: Path, name: str, table: str) -> Path:
    for path in (
        folder / f"{table}.csv.gz",
        folder / f"{table}.csv",
        folder / _NAME / f"{table}.csv",
        folder / f"{_NAME}.zip",
    ):
        if path.is_file():
            return path
    if not name:
        raise missing(name, f"{table}.csv or {table}.csv.gz", folder)
    raise missing(name, f"{table}.csv.gz, {_NAME}/{table}.csv or {_NAME}.zip", folder)
