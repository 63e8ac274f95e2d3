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


def load(folder: Path) -> Ratings:
    path, text = _table(folder, "ratings", "userId,movieId,rating,timestamp")
    with readable("movielens", path):
        rows = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2, dtype=np.float64)
        if rows.shape[1:] != (4,):
            raise ValueError(f"{rows.shape[1:]} columns instead of 4")
    path, text = _table(folder, "movies", "movieId,title,genres")
    with readable("movielens", path):
        movies = tuple(
            Movie(int(id), title, () if genres == _NO_GENRES else tuple(genres.split("|")))
            for id, title, genres in csv.reader(io.StringIO(text))
        )
    user, movie, timestamp = (rows[:, i].astype(np.int64) for i in (0, 1, 3))
    return Ratings(user, movie, rows[:, 2], timestamp, movies)


def _table(folder: Path, name: str, header: str) -> tuple[Path, str]:
    """The file that a table was found in, and its text after the header."""
    path = _find(folder, name)
    with readable("movielens", path):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                data = archive.read(f"{_NAME}/{name}.csv")
        elif path.suffix == ".gz":
            data = gzip.decompress(path.read_bytes())
        else:
            data = path.read_bytes()
        first, _, rest = data.decode("utf-8").partition("\n")
        if first.rstrip("\r") != header:
            raise ValueError(f"its first line is not {header!r}")
        return path, rest


def _find(folder: Path, name: str) -> Path:
    for path in (
        folder / f"{name}.csv.gz",
        folder / f"{name}.csv",
        folder / _NAME / f"{name}.csv",
        folder / f"{_NAME}.zip",
    ):
        if path.is_file():
            return path
    raise missing("movielens", f"{name}.csv.gz, {_NAME}/{name}.csv or {_NAME}.zip", folder)
