"""The MuJoCo worlds beside Gymnasium's own: the same bodies, steps, health and episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="needs the extra: pip install 'fedrl[mujoco]'")
from support.mujoco_worlds import GYMNASIUM, NAMES, draws, gentle, own, seeds

from fedrl.envs.control.mujoco import TASKS, Settings, World, is_healthy, states_of

pytestmark = pytest.mark.slow


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reference(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)  # MuJoCo logs its warning about Gymnasium's cheetah there
    environment = gymnasium.make(GYMNASIUM[name])
    environment.reset(seed=0)
    yield environment
    environment.close()


@pytest.mark.parametrize("scale", [0.2, 3.0], ids=["gentle", "clipped"])
def test_step_is_gymnasiums_to_the_last_bit(name: str, reference: Any, scale: float) -> None:
    world = World(Settings(name), clients=1, seed=0)
    for episode in range(3):
        random = np.random.default_rng(episode)
        position, velocity, _ = draws(world, 0, seed=episode)
        velocity = velocity + random.uniform(-0.5, 0.5, velocity.shape)
        reference.reset(seed=0)
        reference.unwrapped.set_state(position, velocity)
        body = [world.place(0, 0, position, velocity)]
        state = states_of(body)
        assert np.array_equal(world.observe(state)[0], reference.unwrapped._get_obs())
        for _ in range(200):
            action = (scale * random.standard_normal(world.action_size)).astype(np.float32)
            expected, reward, terminated, _, _ = reference.step(action)
            state, rewards, ended = world.step(body, state, action[None])
            assert np.array_equal(world.observe(state)[0], expected)
            assert rewards[0] == reward
            assert ended[0] == terminated
            if terminated:
                break
        assert bool(ended[0]) == (name != "halfcheetah")


def test_rollout_is_gymnasiums_episode(name: str, reference: Any) -> None:
    world = World(Settings(name, horizon=60), clients=3, seed=4)
    trajectories = world.rollout(gentle, own(4, client=2), seeds(4, start=10))
    for row in range(4):
        position, velocity, noise = draws(world, 2, seed=10 + row)
        reference.reset(seed=0)
        reference.unwrapped.set_state(position, velocity)
        observation = reference.unwrapped._get_obs()
        for step in range(world.horizon):
            seen = observation.astype(np.float32)
            action = gentle(seen[None], noise[step][None], np.arange(1))[0]
            observation, reward, terminated, _, _ = reference.step(action)
            assert np.array_equal(trajectories.observations[row, step], seen)
            assert np.array_equal(trajectories.actions[row, step], action)
            assert trajectories.rewards[row, step] == np.float32(reward)
            if terminated:
                break
        assert trajectories.mask[row].sum() == step + 1


@pytest.mark.parametrize("name", ["walker2d", "hopper"])
def test_health_is_gymnasiums_on_either_side_of_every_limit(name: str, reference: Any) -> None:
    health = TASKS[name].health
    assert health is not None
    env, world = reference.unwrapped, World(Settings(name), clients=1, seed=0)
    model = world.models[0]
    cases = [(1, value) for value in health.height] + [(2, value) for value in health.angle]
    cases += [(index, sign * 100.0) for index in range(2, model.nq + model.nv) for sign in (-1, 1)]
    answers = set()
    for index, limit in cases:
        for value in (limit - 1e-9, limit, limit + 1e-9):
            state = np.concatenate([model.qpos0, np.zeros(model.nv)])
            state[index] = min(value, 1e300)
            env.data.qpos[:], env.data.qvel[:] = np.split(state, [model.nq])
            answers.add(bool(env.is_healthy))
            assert is_healthy(health, state[None])[0] == env.is_healthy
            assert np.array_equal(world.observe(state[None])[0], env._get_obs())
    assert answers == {True, False}


def test_spread_of_lengths_changes_geometry_only(name: str, reference: Any) -> None:
    plain = World(Settings(name), clients=2, seed=1)
    spread = World(Settings(name, length_spread=0.2), clients=2, seed=1)
    original = reference.unwrapped.model
    for field in ("geom_size", "geom_pos", "body_pos", "body_mass", "body_inertia", "jnt_pos"):
        for model in plain.models:
            assert np.array_equal(getattr(model, field), getattr(original, field)), field

    assert spread.observation_size == plain.observation_size
    assert spread.action_size == plain.action_size
    assert len(set(spread.lengths)) == 2
    for factor, model in zip(spread.lengths, spread.models):
        assert 0.8 <= factor <= 1.2
        np.testing.assert_allclose(model.body_pos, factor * original.body_pos, rtol=1e-12)
        np.testing.assert_allclose(model.jnt_pos, factor * original.jnt_pos, rtol=1e-12)
        np.testing.assert_allclose(model.qpos0, factor * original.qpos0, rtol=1e-12)
        # Geometry 0 is the floor: it stays; capsules get longer, not thicker.
        assert np.array_equal(model.geom_size[0], original.geom_size[0])
        assert np.array_equal(model.geom_size[1:, 0], original.geom_size[1:, 0])
        np.testing.assert_allclose(
            model.geom_size[1:, 1], factor * original.geom_size[1:, 1], rtol=1e-12
        )
        np.testing.assert_allclose(
            model.geom_pos[1:], factor * original.geom_pos[1:], rtol=1e-12, atol=1e-15
        )

    short, long = (spread.rollout(gentle, own(1, client), seeds(1)) for client in (0, 1))
    assert not np.array_equal(short.observations, long.observations)
