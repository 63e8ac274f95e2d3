"""Server optimisers against their textbook recursions and optax."""

from __future__ import annotations

import numpy as np
import pytest

from fedrl.aggregation import server_optimizers


def walk(name, directions, lr=0.1):
    params = {"x": np.zeros(3)}
    state = server_optimizers.init(name, params)
    for d in directions:
        params, state = server_optimizers.apply(name, state, params, {"x": d}, lr)
    return params["x"]


DIRECTIONS = np.random.default_rng(0).standard_normal((5, 3))


def test_sgd_adds_up():
    np.testing.assert_allclose(walk("sgd", DIRECTIONS), 0.1 * DIRECTIONS.sum(0))


def test_momentum_is_a_geometric_sum():
    velocity, x = np.zeros(3), np.zeros(3)
    for d in DIRECTIONS:
        velocity = 0.9 * velocity + d
        x = x + 0.1 * velocity
    np.testing.assert_allclose(walk("momentum", DIRECTIONS), x)


def test_adam_first_step_has_size_lr_whatever_the_scale():
    for scale in (1e-2, 1.0, 1e3):
        step = walk("adam", [scale * DIRECTIONS[0]])
        np.testing.assert_allclose(step, 0.1 * np.sign(DIRECTIONS[0]), rtol=1e-4)


def test_adam_against_its_definition():
    m = v = x = np.zeros(3)
    for t, d in enumerate(DIRECTIONS, 1):
        m = 0.9 * m + 0.1 * d
        v = 0.99 * v + 0.01 * d**2
        corrected = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-12)
        x = x + 0.1 * corrected
    np.testing.assert_allclose(walk("adam", DIRECTIONS), x, rtol=1e-5)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_dtypes_stay(name):
    params = {"g": {"x": np.zeros(3, np.float32)}}
    state = server_optimizers.init(name, params)
    direction = {"g": {"x": np.ones(3, np.float32)}}
    moved, state = server_optimizers.apply(name, state, params, direction, 0.1)
    assert moved["g"]["x"].dtype == np.float32
