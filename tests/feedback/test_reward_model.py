"""The network of ratings, its losses, and the reward model that learns from answers."""

from __future__ import annotations

import numpy as np
import pytest

from fedrl.algorithms.fedrlhf.ratings import policy
from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback import rating_network as network
from fedrl.feedback import reward_model
from fedrl.feedback.rating_kernels import Answers, Examples, Rules, Sizes

SIZES = Sizes(users=2, movies=5, embedding=3, genres=4, first=7, second=6, outputs=2)


def examples(sizes: Sizes, count: int, seed: int = 0) -> Examples:
    random = np.random.default_rng(seed)
    genres = (random.random((count, sizes.genres)) < 0.4).astype(np.float32)
    return Examples(
        random.integers(sizes.users, size=count), random.integers(sizes.movies, size=count), genres
    )


def vector(sizes: Sizes, seed: int = 1, size: float = 4.0) -> np.ndarray:
    weights = network.init_weights(sizes, seed)
    weights = {name: array * np.float32(size) for name, array in weights.items()}
    return network.pack(weights, np.arange(sizes.users), np.arange(sizes.movies))


def outputs_in_jax(weights, sizes: Sizes, states: Examples):
    jnp = pytest.importorskip("jax", reason="autodiff is the oracle").numpy
    d, e = 2 * sizes.embedding + sizes.genres, sizes.embedding
    counts = [
        sizes.users * e, sizes.movies * e, d * sizes.first, sizes.first,
        sizes.first * sizes.second, sizes.second, sizes.outputs * sizes.second,
    ]  # fmt: skip
    user, movie, w1, b1, w2, b2, w3, b3 = jnp.split(weights, np.cumsum(counts))
    tables = user.reshape(-1, e)[states.user], movie.reshape(-1, e)[states.movie]
    x = jnp.concatenate([*tables, states.genres], 1)
    h1 = jnp.maximum(x @ w1.reshape(d, -1) + b1, 0)
    h2 = jnp.maximum(h1 @ w2.reshape(sizes.first, -1) + b2, 0)
    return h2 @ w3.reshape(sizes.outputs, -1).T + b3


def gradient(sizes: Sizes, weights: np.ndarray, states: Examples, slopes) -> np.ndarray:
    """By the kernels: of a loss whose slopes by the outputs `slopes(work)` fills in."""
    work = kernels.scratch(sizes, len(states.user), np.zeros_like(weights))
    work.picks[:] = np.arange(len(states.user))
    kernels.forward(weights, sizes, states, work)
    slopes(work)
    kernels.backward(weights, sizes, states, work)
    return work.gradient


@pytest.mark.slow
def test_values_and_their_gradient_are_those_of_autodiff():
    jax = pytest.importorskip("jax", reason="autodiff is the oracle")
    random = np.random.default_rng(2)
    states, weights = examples(SIZES, 9), vector(SIZES, 7, 1.5)
    rewards = random.normal(size=(9, 2)).astype(np.float32)
    chances = np.tile([0.02, 0.98, 0.5], 3)
    rules = Rules(9, 1e-3, temperature=0.7)
    found = gradient(
        SIZES, weights, states, lambda w: policy.q_learning_slopes(w, rewards, chances, rules)
    )
    q = np.asarray(outputs_in_jax(weights, SIZES, states))
    np.testing.assert_allclose(kernels.part_outputs(weights, SIZES, states), q, rtol=1e-4)
    action = (chances < 1 / (1 + np.exp(-(q[:, 1] - q[:, 0]) / 0.7))).astype(int)
    assert set(action) == {0, 1}

    def loss(w):
        chosen = outputs_in_jax(w, SIZES, states)[np.arange(9), action]
        return ((chosen - rewards[np.arange(9), action]) ** 2).mean() / 2

    expected = np.asarray(jax.grad(loss)(jax.numpy.array(weights)))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    assert (found != 0).mean() > 0.5


@pytest.mark.slow
def test_the_gradient_of_the_answers_likelihood_is_that_of_autodiff():
    """The model as its docstring states it, differentiated by somebody else."""
    jax = pytest.importorskip("jax", reason="autodiff is the oracle")
    sizes = SIZES._replace(outputs=1)
    states, weights = examples(sizes, 6, 3), vector(sizes, 4)
    answers = Answers(
        np.array([0, 1, 2, 3, 4, 0, 5, 2]),
        np.array([-1, -1, -1, -1, 5, 1, 3, 4]),
        np.array([0.5, -1.0, 0.2, -0.3, 0, 0, 0, 0], np.float32),
        np.array([1, -1, 0, 0.4, -1, 1, 0, 0.5], np.float32),
    )
    rules = Rules(8, 1e-3, scale=0.6, slack=0.4)
    both = np.concatenate(
        [answers.first, np.where(answers.second < 0, answers.first, answers.second)]
    )
    doubled = Examples(*(column[both] for column in states))
    total = []

    def slopes(work):
        total.append(kernels.utility_slopes(work, answers, np.arange(8), rules))

    found = gradient(sizes, weights, doubled, slopes)

    def loss(w):
        u = outputs_in_jax(w, sizes, states)[:, 0]
        sigmoid, log = jax.nn.sigmoid, jax.numpy.log
        value, size = answers.value, np.abs(answers.value)
        away = u[answers.first] - answers.score
        low, high = sigmoid((away - 0.4) / 0.6), sigmoid((-away - 0.4) / 0.6)
        rated = size * log(np.where(value > 0, 1, 0) * low + np.where(value > 0, 0, 1) * high)
        rated += (1 - size) * log(1 - low - high)
        ahead = (u[answers.first] - u[answers.second]) / 0.6
        chosen = size * log(sigmoid(np.where(value > 0, -1, 1) * ahead))
        return -jax.numpy.where(answers.second < 0, rated, chosen).mean()

    value, expected = jax.value_and_grad(loss)(jax.numpy.array(weights))
    assert total[0] / 8 == pytest.approx(float(value), rel=1e-4)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-3, atol=1e-6)


def test_leaving_other_rows_out_changes_nothing():
    """Adam over the whole tables and over a client's rows gives the same network."""
    weights = network.init_weights(SIZES, 3)
    states = examples(SIZES, 12)
    states = Examples(np.ones(12, np.int64), np.where(states.movie > 2, 4, 1), states.genres)
    random = np.random.default_rng(0)
    rewards = random.normal(size=(12, 2)).astype(np.float32)
    order = np.stack([random.permutation(12) for _ in range(3)])
    chances, rules = random.random((3, 12)), Rules(5, 0.01)
    whole = network.pack(weights, np.arange(2), np.arange(5))
    adam = network.adam_memory(None, whole.size)
    policy.learn(whole, SIZES, states, rewards, order, chances, rules, *adam)
    part = network.pack(weights, np.array([1]), np.array([1, 4]))
    sizes = SIZES._replace(users=1, movies=2)
    rows = Examples(np.zeros(12, np.int64), (states.movie == 4).astype(np.int64), states.genres)
    adam = network.adam_memory(None, part.size)
    policy.learn(part, sizes, rows, rewards, order, chances, rules, *adam)
    found, small = network.unpack(whole, SIZES), network.unpack(part, sizes)
    assert np.array_equal(found["layers"], small["layers"])
    assert np.array_equal(found["user"][[1]], small["user"])
    assert np.array_equal(found["movie"][[1, 4]], small["movie"])
    assert np.array_equal(found["movie"][[0, 2, 3]], weights["movie"][[0, 2, 3]])
    assert not np.array_equal(found["movie"][1], weights["movie"][1])


SHAPE = reward_model.sizes(users=1, movies=40, genres=4)


def answered(value) -> tuple[Examples, Answers]:
    """Forty movies; `value(i, p)` is said to score p (from neutral), or of i and i + 1."""
    states = Examples(np.zeros(40, np.int64), np.arange(40), examples(SHAPE, 40).genres)
    scores = np.repeat([-1.0, 0.0, 1.0], 40).astype(np.float32)
    first = np.tile(np.arange(40), 3)
    return states, Answers(
        first,
        np.full(120, -1),
        scores,
        np.array([value(i, p) for i, p in zip(first, scores)], np.float32),
    )


def test_told_nothing_it_says_nothing():
    fresh = reward_model.init(SHAPE, 0)
    assert not reward_model.predict(fresh, SHAPE, answered(lambda i, p: 0)[0]).any()


def test_it_learns_what_a_person_likes_from_ratings():
    """The first twenty movies are a star above neutral, the others a star below."""
    liked = np.where(np.arange(40) < 20, 1.0, -1.0)
    states, answers = answered(lambda i, p: np.sign(liked[i] - p) * (abs(liked[i] - p) > 0.5))
    fresh = reward_model.init(SHAPE, 0)
    h = reward_model.predict(
        reward_model.fit(fresh, SHAPE, states, answers, 40, 0.01, 0), SHAPE, states
    )
    assert (np.sign(h) == liked).all()
    assert np.abs(h).max() <= 1
    assert np.abs(h).min() > 0.3


def test_right_is_an_answer_too():
    """All scores of one star above neutral are right: so the liking is there, not at 0."""
    states, answers = answered(lambda i, p: 0.0)
    high = answers.score > 0.5
    answers = Answers(*(column[high] for column in answers))
    fresh = reward_model.init(SHAPE, 0)
    fitted = reward_model.fit(fresh, SHAPE, states, answers, 60, 0.01, 0)
    assert reward_model.predict(fitted, SHAPE, states) == pytest.approx(np.tanh(1.0), abs=0.15)


@pytest.mark.slow
def test_it_learns_an_order_from_comparisons():
    states, _ = answered(lambda i, p: 0)
    random = np.random.default_rng(0)
    pairs = np.array([random.choice(40, 2, replace=False) for _ in range(400)])
    value = np.sign(pairs[:, 1] - pairs[:, 0]).astype(np.float32)  # the higher number is better
    answers = Answers(pairs[:, 0], pairs[:, 1], np.zeros(400, np.float32), value)
    fresh = reward_model.init(SHAPE, 0)
    fitted = reward_model.fit(fresh, SHAPE, states, answers, 30, 0.01, 0)
    h = reward_model.predict(fitted, SHAPE, states)
    assert np.corrcoef(np.argsort(np.argsort(h)), np.arange(40))[0, 1] > 0.9
    silent = answers._replace(value=np.zeros(400, np.float32))
    unmoved = reward_model.fit(fresh, SHAPE, states, silent, 5, 0.01, 0)
    assert not reward_model.predict(unmoved, SHAPE, states).any()
