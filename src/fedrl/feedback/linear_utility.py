"""A linear model of people's utility with low-rank factors, learned from their answers, compiled.

    u(person, movie) = x·(w + w_p) + b_m + f_p·f_m      x = (1, genres, how often it is watched)

w and the movie's bias b_m and factors f_m are common to all; w_p and f_p are a person's own: a
bias, a weight of each genre, and R factors (Koren, Bell and Volinsky, "Matrix factorization
techniques for recommender systems", 2009). u is in stars from where "high" begins, and people's
answers are likely by it as they are by a reward model's (`reward_model`): an ordered logit of
scores, Bradley and Terry of pairs. With ridge penalties that is

    F = Σ answers −log P(answer | u)
        + ½ decay Σ_p |w_p, f_p|² + ½ movie_decay (|w|² + Σ_m |b_m, f_m|²)

A client's F_k has its part of the penalty of what is common (`Penalty`), so that F is the sum of
these. All weights are one vector: people's rows (w_p, f_p), movies' rows (b_m, f_m), w.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback.rating_kernels import Answers, Ints, Rules, Single, Sizes

Floats = NDArray[np.float64]
_part = njit(error_model="numpy", nogil=True)  # compiled into what is cached
_compiled = njit(cache=True, error_model="numpy", nogil=True)


class Shape(NamedTuple):
    """Of a model, or of a client's part of it: then users and movies are those it holds."""

    users: int
    movies: int
    features: int
    rank: int

    @property
    def rows(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the tables of users and movies."""
        return (self.users, self.features + self.rank), (self.movies, 1 + self.rank)


class States(NamedTuple):
    """Rows of the tables of users and movies, and x."""

    user: Ints  # [n]
    movie: Ints  # [n]
    features: Single  # [n, D]


class Penalty(NamedTuple):
    """Of each weight: how many answers are about its row, at least 1, and its ridge penalty."""

    answers: Floats  # [weights]
    weight: Floats  # [weights]


Slopes = Callable[[Single, Shape, States, Answers, Rules, Floats], float]
RULES = Rules(batch=0, lr=0.0)
"""The noise in people's answers; steps are taken here."""


def features(genres: Single, watched: NDArray[np.floating]) -> Single:
    """x [n, G + 2], the genres together of length 1; `watched` [n] is in [0, 1]."""
    length = np.sqrt(np.maximum(genres.sum(1, keepdims=True), 1))
    one = np.ones((len(genres), 1))
    return np.concatenate([one, genres / length, watched[:, None]], 1).astype(np.float32)


def utilities(weights: Single, shape: Shape, states: States) -> Floats:
    """u [n]."""
    rows, movies, common = unpack(weights, shape).values()
    own, movie, wide = rows[states.user], movies[states.movie], shape.features
    linear = (states.features * (common + own[:, :wide])).sum(1, dtype=np.float64)
    return linear + movie[:, 0] + (own[:, wide:] * movie[:, 1:]).sum(1, dtype=np.float64)


def unpack(vector: Single, shape: Shape) -> dict[str, Single]:
    """The vector's parts, as tables."""
    of_users, of_movies = shape.rows
    cut = of_users[0] * of_users[1]
    end = cut + of_movies[0] * of_movies[1]
    return {
        "user": vector[:cut].reshape(of_users),
        "movie": vector[cut:end].reshape(of_movies),
        "layers": vector[end:],
    }


def penalty(
    shape: Shape, states: States, answers: Answers, decays: tuple[float, float], holders: Floats,
    clients: int,
) -> Penalty:  # fmt: skip
    """`decays` of people's rows and of what is common, of which a client has a part: of a movie's
    that it was told something about one of as many parts as `holders` [M], of w one of as many as
    clients."""
    first, second = answers.first, answers.second[answers.second >= 0]
    people = np.bincount(states.user[first], minlength=shape.users)
    movies = np.bincount(states.movie[np.concatenate([first, second])], minlength=shape.movies)
    (_, wide), (_, narrow) = shape.rows
    counts = (
        np.repeat(people, wide), np.repeat(movies, narrow), np.full(shape.features, len(first))
    )  # fmt: skip
    own, common = decays
    weights = (
        np.full(shape.users * wide, own),
        np.repeat(common * (movies > 0) / np.maximum(holders, 1), narrow),
        np.full(shape.features, common / clients),
    )
    return Penalty(np.maximum(np.concatenate(counts), 1.0), np.concatenate(weights))


@_part
def utility(weights: Single, shape: Shape, states: States, place: int) -> float:
    wide, rank = shape.features, shape.rank
    user = states.user[place] * (wide + rank)
    movie = shape.users * (wide + rank) + states.movie[place] * (1 + rank)
    common, total = weights.size - wide, float(weights[movie])
    for d in range(wide):
        total += states.features[place, d] * (weights[common + d] + weights[user + d])
    for r in range(rank):
        total += weights[user + wide + r] * weights[movie + 1 + r]
    return total


@_part
def add_slopes(
    weights: Single, shape: Shape, states: States, place: int, slope: float, gradient: Floats
) -> None:
    """slope · ∇u of this state."""
    wide, rank = shape.features, shape.rank
    user = states.user[place] * (wide + rank)
    movie = shape.users * (wide + rank) + states.movie[place] * (1 + rank)
    common = weights.size - wide
    gradient[movie] += slope
    for d in range(wide):
        push = slope * states.features[place, d]
        gradient[user + d] += push
        gradient[common + d] += push
    for r in range(rank):
        gradient[user + wide + r] += slope * weights[movie + 1 + r]
        gradient[movie + 1 + r] += slope * weights[user + wide + r]


def _build(fingerprint: int) -> Slopes:
    @_compiled
    def slopes(
        weights: Single, shape: Shape, states: States, answers: Answers, rules: Rules,
        gradient: Floats,
    ) -> float:  # fmt: skip
        """Σ −log P of all answers; its gradient is added to `gradient` [weights]."""
        _ = fingerprint
        count = answers.first.size
        work = kernels.scratch(Sizes(0, 0, 0, 0, 0, 0, 1), 2 * count, np.empty(0, np.float32))
        for a in range(count):
            work.out[a, 0] = utility(weights, shape, states, answers.first[a])
            if answers.second[a] >= 0:
                work.out[count + a, 0] = utility(weights, shape, states, answers.second[a])
        loss = kernels.utility_slopes(work, answers, np.arange(count), rules)
        for a in range(count):
            slope = count * float(work.dout[a, 0])
            add_slopes(weights, shape, states, answers.first[a], slope, gradient)
            if answers.second[a] >= 0:
                slope = count * float(work.dout[count + a, 0])
                add_slopes(weights, shape, states, answers.second[a], slope, gradient)
        return loss

    return slopes


slopes = _build(zlib.crc32(inspect.getsource(kernels).encode()))


def learn(
    weights: Single, shape: Shape, states: States, answers: Answers, penalty: Penalty, lr: float,
    steps: int, own: bool,
) -> float:  # fmt: skip
    """So many steps of people's `own` rows, or of what is common, in place; the last −log P, a mean
    over answers.

    A row's step is its slope over the number of answers that are about it and its penalty: a person
    gives many, of a movie a client has few. For n clients of one answer each, the mean of their
    steps of a movie's row is the step of one client that has all n answers.
    """
    cut = shape.users * (shape.features + shape.rank)
    part = slice(0, cut) if own else slice(cut, None)
    about, weight = (column[part] for column in (penalty.answers, penalty.weight))
    loss = 0.0
    for _ in range(steps):
        gradient = np.zeros(weights.size)
        loss = slopes(weights, shape, states, answers, RULES, gradient)
        down = gradient[part] + weight * weights[part]
        weights[part] -= (lr * down / (about + weight)).astype(np.float32)
    return loss / max(len(answers.first), 1)
