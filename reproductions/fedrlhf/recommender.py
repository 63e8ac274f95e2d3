"""What the linear policy is measured beside: models that are told the stars of all trained ratings.

    logistic    every client's own logistic regression of "high" on a bias and genres, ridge penalty
    factors     biased matrix factorisation of all clients' stars in one place, by alternating least
                squares: stars = μ + b_p + b_m + f_p·f_m

Neither asks anybody: they know what people gave, also where nobody would have asked. Their
penalties and the rank were chosen on tuning seeds (`grid.toml`, `[told]`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fedrl.algorithms.fedrlhf.ratings import metrics
from fedrl.algorithms.fedrlhf.ratings.metrics import EDGE
from fedrl.config.build import build_world
from fedrl.envs.ratings import HIGH, RatingsWorld, UserRatings
from fedrl.feedback.linear_utility import features
from reproductions.grid import Cell
from reproductions.records import Data, rounded

Scores = Callable[[int, UserRatings], np.ndarray]
"""Of a client's held-out movies: how much above "high" its score is [n]."""
TURNS = 15
"""Of alternating least squares."""


class Found(NamedTuple):
    """Over all clients: accuracy weighted by examples, and the mean rank correlation."""

    accuracy: float
    spearman: float


def judged(world: RatingsWorld, scores: Scores) -> Found:
    right = count = 0
    ranks = []
    for client, user in enumerate(world.ratings):
        score, stars = scores(client, user), user.rating[user.held]
        right += metrics.correct_count(expit(score), stars)
        count += len(stars)
        ranks.append(metrics.spearman(score, stars))
    known = [rank for rank in ranks if np.isfinite(rank)]
    return Found(right / count, float(np.mean(known)) if known else float("nan"))


def measure(cell: Cell, seed: int, told: Mapping[str, float]) -> Data:
    """Both models and the majority class, on a cell's world."""
    world = build_world(cell.resolved(seed))
    majority = judged(world, lambda client, user: np.full(len(user.held), often(user)))
    found = {
        "majority": majority.accuracy,
        "logistic": judged(world, logistic(world, told["logistic"]))._asdict(),
        "factors": judged(world, factors(world, int(told["rank"]), told["factors"]))._asdict(),
    }
    return dict(rounded({"told": dict(told), **found}))


def often(user: UserRatings) -> float:
    """1 where most trained ratings are high, else −1."""
    return 1.0 if (user.rating[user.train] >= HIGH).mean() > 0.5 else -1.0


def logistic(world: RatingsWorld, decay: float) -> Scores:
    def scores(client: int, user: UserRatings) -> np.ndarray:
        x = features(world.genres[user.movie], np.zeros(len(user.movie))).astype(np.float64)
        high = user.rating[user.train] >= HIGH
        return x[user.held] @ fitted(x[user.train], high, decay)

    return scores


def fitted(x: np.ndarray, high: np.ndarray, decay: float, turns: int = 25) -> np.ndarray:
    """Ridge logistic regression by Newton's method; the bias, x's first column, is free."""
    weights, penalty = np.zeros(x.shape[1]), np.full(x.shape[1], decay)
    penalty[0] = 1e-3  # of somebody who likes everything it would not end
    for _ in range(turns):
        chance = expit(x @ weights)
        slope = x.T @ (chance - high) + penalty * weights
        bend = (x * (chance * (1 - chance))[:, None]).T @ x + np.diag(penalty)
        weights -= np.linalg.solve(bend, slope)
    return weights


def factors(world: RatingsWorld, rank: int, decay: float) -> Scores:
    """The biases are a row's first number, with a 1 across from it."""
    person = np.concatenate([np.full(len(u.train), c) for c, u in enumerate(world.ratings)])
    movie = np.concatenate([user.movie[user.train] for user in world.ratings])
    stars = np.concatenate([user.rating[user.train] for user in world.ratings]).astype(np.float64)
    mean = stars.mean()
    random = np.random.default_rng(0)
    people = np.zeros((len(world.ratings), 1 + rank))
    movies = np.zeros((len(world.movies), 1 + rank))
    movies[:, 1:] = 0.1 * random.standard_normal((len(movies), rank))
    of_people, of_movies = places(person, len(people)), places(movie, len(movies))
    for _ in range(TURNS):
        solve(people, of_people, movies, movie, stars - mean, decay)
        solve(movies, of_movies, people, person, stars - mean, decay)

    def scores(client: int, user: UserRatings) -> np.ndarray:
        own, theirs = people[client], movies[user.movie[user.held]]
        return mean + own[0] + theirs[:, 0] + theirs[:, 1:] @ own[1:] - EDGE

    return scores


def places(row: np.ndarray, count: int) -> list[np.ndarray]:
    """Of every row, which examples are about it."""
    order = np.argsort(row, kind="stable")
    return np.split(order, np.cumsum(np.bincount(row, minlength=count))[:-1])


def solve(
    rows: np.ndarray, about: Sequence[np.ndarray], others: np.ndarray, other: np.ndarray,
    stars: np.ndarray, decay: float,
) -> None:  # fmt: skip
    """Every row by ridge regression with the others fixed."""
    penalty = decay * np.eye(rows.shape[1])
    for row, mine in enumerate(about):
        if len(mine):
            theirs = others[other[mine]]
            x = np.concatenate([np.ones((len(mine), 1)), theirs[:, 1:]], 1)
            rows[row] = np.linalg.solve(x.T @ x + penalty, x.T @ (stars[mine] - theirs[:, 0]))
