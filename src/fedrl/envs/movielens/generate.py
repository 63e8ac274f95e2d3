"""Ratings of MovieLens's schema, made up: for machines without the data, and for tests.

A movie has a quality and a few genres; a user has a level of their own and tastes by genre. A
rating is their sum with noise, in half stars. Good movies are watched more, and people watch what
they like, as in the genuine data; so watching says a little about ratings, and answers say more.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

import numpy as np

from fedrl.core.seeding import generator
from fedrl.datasets.movielens import Movie, Ratings

_WORDS = tomllib.loads(files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))
GENRES: list[str] = _WORDS["genres"]

LEVEL, HEIGHT = 3.6, 0.35  # stars: the mean of all ratings, the spread of users' levels
QUALITY, TASTE, NOISE = 0.4, 0.8, 0.4  # stars: spreads over movies, over genres, of a rating
FASHION, LIKING = 0.5, 0.3  # how strongly quality and taste steer what is watched
FIRST_DAY, DAY = 1_000_000_000, 86_400


def generate(users: int, movies: int, each: int, family: int) -> Ratings:
    """`each` is the mean number of ratings per user; from a fifth of it to several times it."""
    random = generator(family, "movielens/generate")
    genres = _genres(random, movies)
    shares = genres / genres.sum(1, keepdims=True)
    quality = QUALITY * random.standard_normal(movies)
    rows = []
    for user in range(users):
        taste = shares @ (TASTE * random.standard_normal(len(GENRES)))
        pull = FASHION * quality + LIKING * taste + random.gumbel(size=movies)
        count = int(each * random.lognormal(-0.32, 0.8))  # this lognormal's mean is 1
        seen = random.permutation(np.argsort(-pull)[: min(max(count, each // 5, 4), movies)])
        stars = LEVEL + HEIGHT * random.standard_normal() + quality[seen] + taste[seen]
        stars += NOISE * random.standard_normal(len(seen))
        rows.append((np.full(len(seen), user), seen, np.clip(np.round(2 * stars) / 2, 0.5, 5.0)))
    who, what, rating = (np.concatenate(column) for column in zip(*rows))
    days = np.arange(len(who))  # a user's ratings follow each other, one a day
    # Ids with gaps, as in the genuine data: who mixes them up with places reads nonsense.
    return Ratings(
        (3 * who + 1).astype(np.int64),
        (7 * what + 2).astype(np.int64),
        rating,
        FIRST_DAY + DAY * days,
        tuple(_movie(i, genres[i], random) for i in range(movies)),
    )


def _genres(random: np.random.Generator, movies: int) -> np.ndarray:
    """[movies, genres]: one to three each, some genres more often than others."""
    weight = np.linspace(2, 0.5, len(GENRES))
    table = np.zeros((movies, len(GENRES)))
    for row in table:
        count = random.integers(1, 4)
        row[random.choice(len(GENRES), count, replace=False, p=weight / weight.sum())] = 1
    return table


def _movie(number: int, genres: np.ndarray, random: np.random.Generator) -> Movie:
    first, second = (random.choice(_WORDS[place]) for place in ("first_words", "second_words"))
    title = f"{first} {second} {number} ({random.integers(1950, 2020)})"
    return Movie(7 * number + 2, title, tuple(g for g, has in zip(GENRES, genres) if has))
