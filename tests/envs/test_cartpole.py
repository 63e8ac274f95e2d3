"""The compiled CartPole: clients differ in what they should and in nothing else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrl.core.types import UserError
from fedrl.envs.control import cartpole


def rolled(world, clients, horizon, seed=0):
    params = {k: np.stack([v] * 64) for k, v in world.params(clients).items()}
    keys = jax.random.split(jax.random.key(seed), 64)
    noise = jax.random.uniform(jax.random.key(seed + 1), (64, horizon))
    return world.rollout_jax(lambda o, z: (z > 0.5).astype(jnp.int32), noise, params, keys)


@pytest.mark.slow
def test_episodes_end_when_they_fall_and_masks_are_whole():
    world = cartpole.World(cartpole.Settings(), 3, 0)
    observations, _, rewards, mask = map(np.asarray, rolled(world, [1], 100))
    lengths = mask.sum(1).astype(int)
    assert lengths.min() >= 5
    assert lengths.max() < 100
    for row, length in zip(mask, lengths):
        np.testing.assert_array_equal(row, np.arange(100) < length)
    np.testing.assert_array_equal(rewards, mask)
    upright = np.abs(observations[..., 2]) <= cartpole.ANGLE_LIMIT
    assert upright[mask == 1].all()


@pytest.mark.slow
def test_initial_states_stay_within_the_clients_bound():
    world = cartpole.World(cartpole.Settings(initial_spread=0.9), 8, 1)
    bounds = [float(world.params([i])["initial"][0]) for i in range(8)]
    assert max(bounds) / min(bounds) > 1.5
    for client in (int(np.argmin(bounds)), int(np.argmax(bounds))):
        starts = np.abs(np.asarray(rolled(world, [client], 5)[0])[:, 0])
        assert starts.max() <= bounds[client]
        assert starts.max() > 0.9 * bounds[client]


@pytest.mark.parametrize("knob", ["length", "gravity", "force", "initial"])
def test_a_knob_moves_what_it_should_and_nothing_else(knob):
    plain = cartpole.World(cartpole.Settings(initial_spread=0.0), 4, 0).params(range(4))
    other = cartpole.World(
        cartpole.Settings(**({"initial_spread": 0.0} | {f"{knob}_spread": 0.5})), 4, 0
    ).params(range(4))
    for name in plain:
        assert (len(set(other[name].tolist())) > 1) == (name == knob)
        if name != knob:
            np.testing.assert_array_equal(plain[name], other[name])


def test_more_clients_leave_the_first_ones_alone():
    few = cartpole.World(cartpole.Settings(length_spread=0.5), 3, 0).params(range(3))
    many = cartpole.World(cartpole.Settings(length_spread=0.5), 9, 0).params(range(3))
    for name in few:
        np.testing.assert_array_equal(few[name], many[name])


@pytest.mark.slow
def test_a_pool_draws_all_of_its_environments():
    world = cartpole.World(cartpole.Settings(initial=0.001, initial_spread=0.99), 2, 3)
    bounds = sorted(float(world.params([i])["initial"][0]) for i in range(2))
    starts = np.abs(np.asarray(rolled(world, [0, 1], 5)[0])[:, 0]).max(1)
    assert (starts <= bounds[0]).any()
    assert (starts > bounds[0]).any()


@pytest.mark.parametrize(
    "fields", [{"horizon": 0}, {"gamma": 1.2}, {"initial": 0.5}, {"length_spread": 1.0}]
)
def test_impossible_settings(fields):
    with pytest.raises(UserError, match=f"world.{next(iter(fields))}"):
        cartpole.Settings(**fields)
