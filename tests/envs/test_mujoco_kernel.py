"""Compiled episodes of MuJoCo: the physics to the last bit, the network as NumPy has it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the extra: pip install 'fedrl[mujoco]'")
pytest.importorskip("gymnasium", reason="needs the extra: pip install 'fedrl[mujoco]'")
pytest.importorskip("numba", reason="needs the extra: pip install 'fedrl[classic]'")
pytest.importorskip("jax", reason="policies need jax")

from support.mujoco_worlds import NAMES

from fedrl.algorithms.policy_gradient.policies import gaussian_mlp
from fedrl.envs.control import mujoco
from fedrl.envs.control.mujoco import Settings, World

ROWS, STEPS = 6, 120
SEEDS = np.arange(ROWS).astype(np.uint64)
CLIENTS = {"client": np.tile(np.arange(3), 2)[:, None]}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def world(name: str, **fields) -> World:
    settings = Settings(name, horizon=STEPS, length_spread=0.2, gravity_spread=0.3, **fields)
    return World(settings, clients=3, seed=1)


def policy_of(one: World, spread: float = 0.2):
    policy = gaussian_mlp(one.observation_size, one.action_size, log_std=-0.5)
    rng = np.random.default_rng(0)
    rows = [policy.init(row) for row in range(ROWS)]
    theta = {
        key: np.stack(
            [row[key] + spread * rng.standard_normal(row[key].shape) for row in rows]
        ).astype(np.float32)
        for key in rows[0]
    }
    return policy, theta


def test_physics_rewards_and_ends_are_those_of_the_loop_in_python(name: str) -> None:
    """The actions that the compiled loop took, played again step by step."""
    one = world(name)
    policy, theta = policy_of(one)
    fast = one.rollout_network(policy.network(theta), CLIENTS, SEEDS)
    at = iter(range(STEPS))

    def again(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
        return fast.actions[alive, next(at)]

    slow = one.rollout(again, CLIENTS, SEEDS)
    np.testing.assert_array_equal(fast.observations, slow.observations)
    np.testing.assert_array_equal(fast.actions, slow.actions)
    np.testing.assert_array_equal(fast.mask, slow.mask)
    np.testing.assert_allclose(fast.rewards, slow.rewards, rtol=1e-5, atol=1e-5)
    if name != "halfcheetah":
        assert fast.mask.min() == 0  # some fell


def test_actions_are_the_policys(name: str) -> None:
    one = world(name)
    policy, theta = policy_of(one)
    fast = one.rollout_network(policy.network(theta), CLIENTS, SEEDS)
    _, noise, _ = one._begin(CLIENTS, SEEDS)
    for step in range(0, STEPS, 7):
        played = fast.mask[:, step] > 0
        said = policy.sample_rows(theta, fast.observations[:, step], noise[:, step])
        found = fast.actions[:, step]
        np.testing.assert_allclose(found[played], said[played], rtol=1e-4, atol=1e-5)


def test_threads_and_batches_change_no_bit(name: str) -> None:
    one, several = world(name), world(name, threads=3)
    policy, theta = policy_of(one)
    first = one.rollout_network(policy.network(theta), CLIENTS, SEEDS)
    for record, other in zip(first, several.rollout_network(policy.network(theta), CLIENTS, SEEDS)):
        np.testing.assert_array_equal(record, other)
    some = {key: leaf[2:4] for key, leaf in theta.items()}
    chosen = {"client": CLIENTS["client"][2:4]}
    for record, other in zip(first, one.rollout_network(policy.network(some), chosen, SEEDS[2:4])):
        np.testing.assert_array_equal(record[2:4], other)


def test_a_policy_that_diverged_is_played_to_the_end(name: str) -> None:
    one = world(name)
    policy, theta = policy_of(one)
    theta["b2"][:] = np.nan
    found = one.rollout_network(policy.network(theta), CLIENTS, SEEDS)
    assert np.isnan(found.actions[:, 0]).all()


def test_without_numba_the_world_is_asked_step_by_step(monkeypatch) -> None:
    one = world("hopper")
    policy, theta = policy_of(one)
    monkeypatch.setattr(mujoco.importlib.util, "find_spec", lambda name: None)
    assert one.rollout_network(policy.network(theta), CLIENTS, SEEDS) is None
