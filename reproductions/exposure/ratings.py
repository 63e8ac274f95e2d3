"""FedRLHF on ratings under attack: which ratings a person's client trained on, and a secret taste.

Everybody of a fixed population trains on a random half of their ratings; the run's seed says which.
A record is a person's rating of a movie. The statistic of a record is the number that the linear
policy has for its movie, b_m, in the model, or its change in what a client sent: what is common to
all is left aside, so that a cleverer attack may find more.

A canary is a person who also rates some movies that nobody else knows, with five stars or one, at
random: 2^n tastes that it could be, scored by Σ ± b_m. As a control, as many movies are in the
catalogue that nobody has rated at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.algorithms.fedrlhf.ratings.algorithm import build
from fedrl.config.build import settled
from fedrl.config.schema import Config
from fedrl.core.seeding import generator
from fedrl.core.types import Json, Tables
from fedrl.datasets.movielens import Movie
from fedrl.envs.movielens.world import MovieLens
from fedrl.envs.ratings import Floats, UserRatings
from fedrl.federation.client_sampling import client_env_ids
from reproductions.exposure.attacks import exposure
from reproductions.exposure.watching import Seen, watch

POPULATION = 0
"""Seed of who the people are, the same in all runs."""
LIKED, DISLIKED = 5.0, 1.0


class Candidate(NamedTuple):
    """A rating that somebody may have trained on: whose, of which movie."""

    client: int
    movie: int


@dataclass
class Population:
    """A `RatingsWorld`: people of whom everybody trains on some ratings and holds the rest out."""

    clients: int
    movies: tuple[Movie, ...]
    genres: Floats
    ratings: tuple[UserRatings, ...]


@dataclass(frozen=True)
class Probe:
    """What is asked about: records, whether they were trained on, and secret tastes."""

    world: Population
    candidates: list[Candidate]
    member: NDArray[np.bool_]
    canaries: list[tuple[int, NDArray[np.int64], int]]
    """Client, movies, and the number of the taste among all tastes."""
    controls: list[tuple[int, NDArray[np.int64], int]]


def tastes(count: int) -> NDArray[np.float64]:
    """All likes (1) and dislikes (−1) of so many movies [2^n, n]."""
    return np.array(list(itertools.product((-1.0, 1.0), repeat=count)))


def probe(config: Config, how: Tables) -> Probe:
    """The population as this run's seed has it."""
    plain = MovieLens(config.world, config.federation.clients, POPULATION)
    random = generator(config.seed, "exposure/ratings")
    width, people = int(how["secret_movies"]), int(how["canaries"])
    first = len(plain.movies)
    extra = np.arange(first, first + 2 * people * width).reshape(2 * people, width)
    like = generator(POPULATION, "exposure/genres").integers(first, size=extra.size)
    movies = tuple(
        Movie(10_000_000 + i, f"Secret {i}", plain.movies[int(of)].genres)
        for i, of in enumerate(like)
    )
    world_genres = np.concatenate([plain.genres, plain.genres[like]])
    known = tastes(width)
    secrets = [
        (client, extra[place], int(random.integers(len(known))))
        for place, client in enumerate((*range(people), *range(people)))
    ]
    canaries, controls = secrets[:people], secrets[people:]
    stars = {client: (rated, known[taste]) for client, rated, taste in canaries}
    ratings, trained = [], []
    for client, user in enumerate(plain.ratings):
        mine = random.random(len(user.movie)) < 0.5
        trained.append(mine)
        ratings.append(with_secret(user, mine, stars.get(client)))
    world = Population(plain.clients, (*plain.movies, *movies), world_genres, tuple(ratings))
    every = [(k, i) for k, user in enumerate(plain.ratings) for i in range(len(user.movie))]
    drawn = generator(POPULATION, "exposure/candidates").permutation(len(every))
    some = [every[i] for i in sorted(drawn[: int(how["candidates"])])]
    candidates = [Candidate(k, int(plain.ratings[k].movie[i])) for k, i in some]
    member = np.array([trained[k][i] for k, i in some])
    return Probe(world, candidates, member, canaries, controls)


def with_secret(
    user: UserRatings, mine: NDArray[np.bool_],
    secret: tuple[NDArray[np.int64], NDArray[np.float64]] | None,
) -> UserRatings:  # fmt: skip
    """Trained on are those of `mine`, and the secret ones."""
    if secret is None:
        return user._replace(train=np.flatnonzero(mine), held=np.flatnonzero(~mine))
    movies, taste = secret
    count = len(user.movie)
    stars = np.where(taste > 0, LIKED, DISLIKED).astype(np.float32)
    return UserRatings(
        user.user,
        np.concatenate([user.movie, movies]),
        np.concatenate([user.rating, stars]),
        np.concatenate([user.appeal, np.zeros(len(movies), np.float32)]),
        np.concatenate([np.flatnonzero(mine), np.arange(count, count + len(movies))]),
        np.flatnonzero(~mine),
    )


def views(seen: Seen, client: int, at: int) -> dict[str, NDArray[np.float64]]:
    """By view, what is told of every movie; `at` is the round of views of one round."""
    own = [sent[client]["movie"][:, 0].astype(np.float64) for sent in seen.updates]
    movie = [state["movie"][:, 0].astype(np.float64) for state in seen.states]
    return {
        "update": own[at - 1],
        "updates": np.sum(own, 0),
        "mean": movie[at] - movie[at - 1],
        "model": movie[-1],
    }


def measure(config: Config, how: Tables) -> Json:
    """One run, and what an attack sees of its records and secrets."""
    asked = probe(config, how)
    algorithm = build(
        settled(config), asked.world, config.rounds, client_env_ids(config.federation)
    )
    seen = watch(config, algorithm)
    told = [views(seen, client, int(how["round"])) for client in range(config.federation.clients)]
    statistics = {
        view: [float(told[c.client][view][c.movie]) for c in asked.candidates] for view in told[0]
    }
    return {
        "member": "".join("01"[int(m)] for m in asked.member),
        "statistics": statistics,
        "canaries": exposures(told, asked.canaries),
        "controls": exposures(told, asked.controls),
        "utility": {k: seen.metrics[k] for k in how["utility"] if k in seen.metrics},
        "epsilon": seen.metrics.get("privacy/epsilon"),
        "length": float(np.median(seen.lengths)),
        "numbers": seen.numbers,
    }


def exposures(
    told: Sequence[dict[str, NDArray[np.float64]]],
    secrets: Sequence[tuple[int, NDArray[np.int64], int]],
) -> dict[str, list[float]]:
    """By view, the bits of every secret."""
    known = tastes(len(secrets[0][1]))
    return {
        view: [exposure(known @ told[client][view][m], taste) for client, m, taste in secrets]
        for view in told[0]
    }
