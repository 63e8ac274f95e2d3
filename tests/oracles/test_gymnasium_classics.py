"""The compiled classic worlds beside Gymnasium's own: the same states, rewards and ends."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="compares with Gymnasium's own worlds")
pytest.importorskip("numba", reason="the classic worlds are compiled by numba")
from support.discrete_worlds import IDS, KINDS, any_state

from fedrl.envs.control import cartpole
from fedrl.envs.discrete import classic_kernels as classic

pytestmark = pytest.mark.slow

# Squares may be rounded differently (see classic_kernels), and a Runge-Kutta step amplifies that:
# 16 of the last bits of Acrobot's largest number, its top speed of 9π.
ROUNDING = (0.0, 16 * np.spacing(9 * np.pi), 0.0)


def theirs(kind: int):
    return gymnasium.make(IDS[kind])


def state_of(env) -> np.ndarray:
    return np.array(env.unwrapped.state, np.float64)


@KINDS
def test_a_step_from_anywhere_is_gymnasiums(kind):
    env, random = theirs(kind).unwrapped, np.random.default_rng(kind)
    ended = 0
    for _ in range(4000):
        env.reset()
        state = any_state(kind, random)
        env.state = state.copy()
        action = int(random.integers(classic.ACTIONS[kind]))
        observation, reward, terminated, _, _ = env.step(action)
        assert classic.step(kind, state, action) == (reward, terminated)
        np.testing.assert_allclose(state, state_of(env), rtol=0, atol=ROUNDING[kind])
        seen = np.empty(classic.OBSERVATION[kind])
        classic.observe(kind, state_of(env), seen)
        np.testing.assert_array_equal(seen, observation)
        ended += terminated
    assert 50 < ended < 3950


@KINDS
def test_whole_episodes_are_gymnasiums(kind):
    """From the seed on, to both kinds of end; Acrobot, which is chaotic, from state to state."""
    env, random = theirs(kind), np.random.default_rng(1)
    state = np.empty(classic.STATE[kind])
    seen = np.empty(classic.OBSERVATION[kind], np.float32)
    ends = set()
    for seed in range(40 if kind == classic.CARTPOLE else 8):
        start, _ = env.reset(seed=seed)
        classic.reset(kind, state, np.random.default_rng(seed).random(4))
        np.testing.assert_array_equal(state, state_of(env))
        classic.observe(kind, state, seen)
        # Only here Gymnasium takes the cosine in float32, which may be one float32 step off.
        np.testing.assert_allclose(seen, start, rtol=0, atol=6e-8 if kind == classic.ACROBOT else 0)
        steps, terminated, truncated = 0, False, False
        while not (terminated or truncated):
            action = policy(kind, seed, state, random)
            observation, reward, terminated, truncated, _ = env.step(action)
            assert classic.step(kind, state, action) == (reward, terminated)
            np.testing.assert_allclose(state, state_of(env), rtol=0, atol=ROUNDING[kind])
            state[:] = state_of(env)
            classic.observe(kind, state, seen)
            np.testing.assert_array_equal(seen, observation)
            steps += 1
            assert truncated == (steps == classic.LIMIT[kind])
        ends.add((terminated, truncated))
    assert ends == {(True, False), (False, True)}


def policy(kind: int, episode: int, state: np.ndarray, random: np.random.Generator) -> int:
    """Random in even episodes; in odd ones what makes the other kind of end."""
    if episode % 2 == 0:
        return int(random.integers(classic.ACTIONS[kind]))
    if kind == classic.CARTPOLE:
        return int(state @ [0.1, 0.5, 5, 1] > 0)
    return 2 if state[-1] >= 0 else 0  # with the motion: the swings grow


@pytest.mark.parametrize("kind", [classic.CARTPOLE, classic.MOUNTAINCAR])
def test_wandering_is_a_loop_over_gymnasium(kind):
    random = np.random.default_rng(2)
    actions, uniforms = random.integers(classic.ACTIONS[kind], size=900), random.random((900, 4))
    visited = np.empty((900, classic.OBSERVATION[kind]), np.float32)
    classic.wander(kind, actions, uniforms, visited)

    env, expected, episode, over = theirs(kind), [], 0, True
    for action in actions.tolist():
        if over:
            env.reset()
            state = np.empty(classic.STATE[kind])
            classic.reset(kind, state, uniforms[episode])
            env.unwrapped.state, episode = state.copy(), episode + 1
        expected.append(state_of(env).astype(np.float32))
        *_, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    assert episode > 4
    np.testing.assert_array_equal(visited, expected)


# The one in JAX, whose physics clients differ in


def physics(**values):
    base = {"length": 0.5, "gravity": 9.8, "force": 10.0, "initial": 0.05}
    return {k: jnp.full(1, v) for k, v in (base | values).items()}


@pytest.mark.parametrize("values", [{}, {"length": 0.8, "gravity": 5.0, "force": 7.0}])
def test_same_actions_same_states_as_gymnasium(values):
    env = gymnasium.make("CartPole-v1").unwrapped
    env.length = values.get("length", 0.5)
    env.polemass_length = env.masspole * env.length
    env.gravity = values.get("gravity", 9.8)
    env.force_mag = values.get("force", 10.0)
    draw = np.random.default_rng(0)
    for episode in range(5):
        state, _ = env.reset(seed=episode)
        ours = jnp.asarray(env.state, jnp.float32)[:, None]
        for _ in range(200):
            action = int(draw.integers(2))
            state, _, ended, _, _ = env.step(action)
            ours = cartpole.physics_step(ours, jnp.array([action]), physics(**values))
            np.testing.assert_allclose(ours[:, 0], state, rtol=1e-4, atol=1e-5)
            fallen = abs(ours[0, 0]) > cartpole.X_LIMIT or abs(ours[2, 0]) > cartpole.ANGLE_LIMIT
            assert bool(fallen) == ended
            if ended:
                break
