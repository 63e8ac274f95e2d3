"""The linear model of utility: its slopes, its penalty's parts, and what its steps lead to."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="the kernels need the extra classic")

from fedrl.feedback import linear_utility as linear
from fedrl.feedback.linear_utility import Penalty, Shape, States
from fedrl.feedback.rating_kernels import Answers

SHAPE = Shape(users=3, movies=7, features=4, rank=2)


def random_states(rng: np.random.Generator, count: int = 40) -> States:
    return States(
        rng.integers(0, SHAPE.users, count),
        rng.integers(0, SHAPE.movies, count),
        rng.normal(size=(count, SHAPE.features)).astype(np.float32),
    )


def random_answers(rng: np.random.Generator, states: States, count: int = 60) -> Answers:
    """Scores to rate and pairs of one person's movies, answered in whole and in between."""
    first = rng.integers(0, len(states.user), count)
    same = [np.flatnonzero(states.user == states.user[place]) for place in first]
    second = np.array([rng.choice(places) if rng.random() < 0.5 else -1 for places in same])
    score = np.where(second < 0, rng.normal(size=count), 0).astype(np.float32)
    return Answers(first, second, score, rng.choice([-1, -0.4, 0, 0.7, 1], count).astype("f4"))


def loss(vector: np.ndarray, states: States, answers: Answers) -> float:
    """−log P of all answers by the module's formulas, in loops and double precision."""
    wide, rank = SHAPE.features, SHAPE.rank
    people = vector[: SHAPE.users * (wide + rank)].reshape(SHAPE.users, -1)
    movies = vector[SHAPE.users * (wide + rank) : -wide].reshape(SHAPE.movies, -1)

    def u(place: int) -> float:
        own, movie = people[states.user[place]], movies[states.movie[place]]
        x = states.features[place].astype(float)
        return x @ (vector[-wide:] + own[:wide]) + movie[0] + own[wide:] @ movie[1:]

    def sigmoid(z: float) -> float:
        return 1 / (1 + np.exp(-z))

    total = 0.0
    for first, second, score, value in zip(*answers, strict=True):
        if second < 0:
            low = sigmoid((u(first) - score - 0.5) / 0.5)
            high = sigmoid((score - 0.5 - u(first)) / 0.5)
            total -= abs(value) * np.log(low if value > 0 else high)
            total -= (1 - abs(value)) * np.log(1 - low - high)
        else:
            ahead = np.sign(value) * (u(second) - u(first))
            total -= abs(value) * np.log(sigmoid(ahead / 0.5))
    return total


def test_slopes_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    states = random_states(rng)
    answers = random_answers(rng, states)
    size = sum(rows * width for rows, width in SHAPE.rows) + SHAPE.features
    vector = 0.5 * rng.normal(size=size)
    found = np.zeros(size)
    total = linear.slopes(vector.astype("f4"), SHAPE, states, answers, linear.RULES, found)
    assert total == pytest.approx(loss(vector, states, answers), rel=1e-5)
    step = 1e-5 * np.eye(size)
    expected = [
        (loss(vector + d, states, answers) - loss(vector - d, states, answers)) / 2e-5 for d in step
    ]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.slow
def test_utilities_of_many_states_are_those_of_the_kernel():
    rng = np.random.default_rng(1)
    states = random_states(rng)
    size = sum(rows * width for rows, width in SHAPE.rows) + SHAPE.features
    vector = rng.normal(size=size).astype("f4")
    each = [linear.utility(vector, SHAPE, states, place) for place in range(len(states.user))]
    np.testing.assert_allclose(linear.utilities(vector, SHAPE, states), each, rtol=1e-5)


def test_parts_of_a_penalty_add_up_to_it():
    """Two clients hold movies 0 and 1, one holds movie 2, nobody movie 3: each penalty once."""
    shape = Shape(users=1, movies=4, features=3, rank=1)
    held = [np.array([0, 1, 2]), np.array([0, 1])]
    holders = np.bincount(np.concatenate(held), minlength=4).astype(float)
    total, common = np.zeros(4), 0.0
    for movies in held:
        count = len(movies)
        states = States(np.zeros(count, np.int64), movies, np.ones((count, 3), np.float32))
        answers = Answers(np.arange(count), np.full(count, -1), *np.zeros((2, count), np.float32))
        found = linear.penalty(shape, states, answers, (5.0, 8.0), holders, clients=2)
        assert set(found.weight[:4]) == {5.0}
        rows = found.weight[4:12].reshape(4, 2)
        np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
        total[movies] += rows[movies, 0]
        common += found.weight[-1]
    np.testing.assert_array_equal(total, [8, 8, 8, 0])
    assert common == 8
    assert (holders > 0).tolist() == [True, True, True, False]


def test_steps_go_to_where_the_penalized_slope_is_zero():
    """Of a person's own row: convex, so that this is the minimum."""
    rng = np.random.default_rng(2)
    states = random_states(rng)
    answers = random_answers(rng, states)
    size = sum(rows * width for rows, width in SHAPE.rows) + SHAPE.features
    vector = (0.3 * rng.normal(size=size)).astype("f4")
    before = vector.copy()
    weighs = linear.penalty(SHAPE, states, answers, (2.0, 3.0), np.ones(SHAPE.movies), clients=1)
    linear.learn(vector, SHAPE, states, answers, weighs, 0.1, 3000, own=True)
    cut = SHAPE.users * (SHAPE.features + SHAPE.rank)
    gradient = np.zeros(size)
    linear.slopes(vector, SHAPE, states, answers, linear.RULES, gradient)
    np.testing.assert_allclose(gradient[:cut] + 2.0 * vector[:cut], 0, atol=1e-3)
    np.testing.assert_array_equal(vector[cut:], before[cut:])
    linear.learn(vector, SHAPE, states, answers, weighs, 0.1, 1, own=False)
    assert not np.array_equal(vector[cut:], before[cut:])


def test_a_rows_step_is_its_slope_over_its_answers_and_penalty():
    rng = np.random.default_rng(3)
    states = random_states(rng)
    answers = random_answers(rng, states)
    size = sum(rows * width for rows, width in SHAPE.rows) + SHAPE.features
    start = (0.3 * rng.normal(size=size)).astype("f4")
    weighs = Penalty(rng.uniform(1, 9, size), rng.uniform(0, 4, size))
    gradient, vector = np.zeros(size), start.copy()
    linear.slopes(start, SHAPE, states, answers, linear.RULES, gradient)
    linear.learn(vector, SHAPE, states, answers, weighs, 0.2, 1, own=False)
    expected = start - 0.2 * (gradient + weighs.weight * start) / (weighs.answers + weighs.weight)
    cut = SHAPE.users * (SHAPE.features + SHAPE.rank)
    np.testing.assert_allclose(vector[cut:], expected[cut:], atol=1e-6)


def test_genres_are_of_length_one_whatever_their_number():
    table = np.array([[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], np.float32)
    found = linear.features(table, np.array([0.5, 0.0, 1.0]))
    np.testing.assert_allclose(np.linalg.norm(found[:, 1:5], axis=1), [1, 1, 0], atol=1e-6)
    np.testing.assert_array_equal(found[:, 0], 1)
    np.testing.assert_array_equal(found[:, 5], [0.5, 0, 1])
