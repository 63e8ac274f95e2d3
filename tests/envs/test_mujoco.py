"""The MuJoCo worlds against Gymnasium's, and what makes clients differ."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the extra: pip install 'fedrl[mujoco]'")
gymnasium = pytest.importorskip("gymnasium", reason="needs the extra: pip install 'fedrl[mujoco]'")

from fedrl.core.types import UserError
from fedrl.envs.control.mujoco import (
    LONGEST_SPREAD,
    TASKS,
    Settings,
    Trajectories,
    World,
    _build,
    _load_mujoco,
    is_healthy,
    states_of,
)

GYMNASIUM = {
    "halfcheetah": "HalfCheetah-v5",
    "walker2d": "Walker2d-v5",
    "hopper": "Hopper-v5",
}
NAMES = list(GYMNASIUM)


def same(left: Trajectories, right: Trajectories) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right))


def gentle(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """A policy whose rows are independent of each other to the last bit (no matrix product)."""
    return 0.3 * noise - 0.1 * observations[:, -noise.shape[1] :]


def seeds(count: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.uint64)


def own(rows: int, client: int = 0) -> dict[str, np.ndarray]:
    return {"client": np.full((rows, 1), client)}


def draws(world: World, client: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Initial state and action noise in the documented order, by Gymnasium's formulas."""
    model, bound = world.models[client], world.bounds[client]
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    random.integers(1)
    position = model.qpos0 + random.uniform(-bound, bound, model.nq)
    if world.settings.name == "halfcheetah":
        velocity = bound * random.standard_normal(model.nv)
    else:
        velocity = random.uniform(-bound, bound, model.nv)
    noise = random.standard_normal((world.horizon, model.nu), np.float32)
    return position, velocity, noise


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


@pytest.mark.parametrize("factor", [1 - LONGEST_SPREAD, 1 + LONGEST_SPREAD])
def test_the_longest_and_the_shortest_body_start_above_the_floor(name: str, factor: float) -> None:
    world = World(Settings(name, length_spread=LONGEST_SPREAD), clients=1, seed=0)
    engine, assets = _load_mujoco(name)
    model = _build(engine, (assets / TASKS[name].xml).read_text(), factor)
    world.models = [model]
    body = world.place(0, 0, model.qpos0, np.zeros(model.nv))
    assert body.data.ncon == 0
    state, _, ended = world.step([body], states_of([body]), np.zeros((1, model.nu), np.float32))
    assert not ended[0]
    assert np.isfinite(state).all()


def test_initial_states_keep_within_each_clients_bound(name: str) -> None:
    world = World(Settings(name, horizon=1, noise=0.2, noise_spread=0.5), clients=3, seed=2)
    assert len(set(world.bounds)) == 3
    assert (abs(world.bounds / 0.2 - 1) <= 0.5).all()
    model = world.models[0]
    rest = np.concatenate([model.qpos0[1:], np.zeros(model.nv)])
    bounded = slice(0, model.nq - 1) if name == "halfcheetah" else slice(None)
    for client, bound in enumerate(world.bounds):
        start = world.rollout(gentle, own(200, client), seeds(200)).observations[:, 0]
        deviation = np.abs(start - rest)[:, bounded].max()
        assert 0.95 * bound < deviation <= bound * (1 + 1e-6)


def test_bounds_do_not_depend_on_the_number_of_clients() -> None:
    few, many = (World(Settings(length_spread=0.1), n, seed=3) for n in (2, 5))
    assert np.array_equal(few.bounds, many.bounds[:2])
    assert np.array_equal(few.lengths, many.lengths[:2])
    other = World(Settings(), 5, seed=4)
    assert not np.array_equal(other.bounds, many.bounds)
    assert np.array_equal(World(Settings(noise_spread=0), 2, seed=3).bounds, [0.1, 0.1])


def test_a_trajectory_does_not_depend_on_its_batch_or_on_the_past(name: str) -> None:
    settings = Settings(name, horizon=40, length_spread=0.1)
    world = World(settings, clients=3, seed=0)
    ids = np.array([[0], [2], [1], [2], [0], [1]])
    together = world.rollout(gentle, {"client": ids}, seeds(6))
    for row in reversed(range(6)):  # slot 0 has just been another client's
        alone = world.rollout(gentle, {"client": ids[[row]]}, seeds(1, start=row))
        assert same(alone, Trajectories(*(part[[row]] for part in together)))
    fresh = World(settings, clients=3, seed=0)
    assert same(fresh.rollout(gentle, {"client": ids}, seeds(6)), together)


def test_a_pool_draws_each_of_its_clients(name: str) -> None:
    world = World(Settings(name, horizon=3, length_spread=0.2), clients=3, seed=0)
    pool = np.tile(world.params([0, 2])["client"], (40, 1))
    pooled = world.rollout(gentle, {"client": pool}, seeds(40))
    counts = {0: 0, 2: 0}
    for row in range(40):
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(row)))
        client = int(pool[row, random.integers(2)])
        counts[client] += 1
        model, bound = world.models[client], world.bounds[client]
        position = model.qpos0 + random.uniform(-bound, bound, model.nq)
        shown = pooled.observations[row, 0, : model.nq - 1]
        assert np.array_equal(shown, position[1:].astype(np.float32))
    assert min(counts.values()) >= 10


@pytest.mark.parametrize("rows", [5, 17])
def test_threads_change_no_bit(name: str, rows: int) -> None:
    ids = {"client": np.arange(rows)[:, None] % 3}
    one, two = (
        World(Settings(name, horizon=50, length_spread=0.1, threads=n), clients=3, seed=0).rollout(
            gentle, ids, seeds(rows)
        )
        for n in (1, 2)
    )
    assert same(one, two)


def test_finished_episodes_are_masked_zero_and_not_asked(name: str) -> None:
    world = World(Settings(name, horizon=80), clients=1, seed=0)
    asked = np.zeros(8, int)

    def act(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
        assert observations.dtype == noise.dtype == np.float32
        assert len(observations) == len(noise) == len(alive)
        asked[alive] += 1
        return noise

    trajectories = world.rollout(act, own(8), seeds(8))
    lengths = trajectories.mask.sum(axis=1).astype(int)
    assert np.array_equal(asked, lengths)
    expected = np.arange(80)[None] < lengths[:, None]
    assert np.array_equal(trajectories.mask, expected)
    for part in trajectories:
        assert part.dtype == np.float32
        assert not part[~expected].any()
    assert trajectories.observations.shape == (8, 80, world.observation_size)
    assert trajectories.actions.shape == (8, 80, world.action_size)
    if name == "halfcheetah":
        assert (lengths == 80).all()
    else:
        assert len(set(lengths)) > 1
        assert lengths.max() < 80


def test_memory_is_reused() -> None:
    world = World(Settings(horizon=2, length_spread=0.1), clients=4, seed=0)
    world.rollout(gentle, {"client": np.arange(4)[:, None]}, seeds(4))
    slots = [id(slot) for slot in world._slots]
    for client in range(4):
        world.rollout(gentle, own(4, client), seeds(4))
    assert [id(slot) for slot in world._slots] == slots


@pytest.mark.parametrize(
    "key, value",
    [
        ("name", "ant"),
        ("horizon", 0),
        ("gamma", 1.5),
        ("gamma", 0.0),
        ("noise", -0.1),
        ("noise", float("nan")),
        ("noise_spread", 2.0),
        ("length_spread", 0.9),
        ("threads", 0),
    ],
)
def test_impossible_settings_name_the_key(key: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"^world\.{key} is .*; it must [^\n]*$"):
        Settings(**{key: value})


@pytest.mark.parametrize("missing", ["mujoco", "gymnasium"])
def test_a_missing_package_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == missing else find(n))
    with pytest.raises(UserError) as error:
        World(Settings("hopper"), clients=1, seed=0)
    assert str(error.value) == (
        'world "hopper" needs the extra mujoco: pip install "fedrl[mujoco]"'
    )


def test_building_models_is_silent(
    capfd: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo would leave its log of warnings
    World(Settings(length_spread=0.1), clients=2, seed=0)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
