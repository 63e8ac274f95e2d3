"""The MuJoCo worlds: what makes clients differ, and trajectories that depend on nothing else."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the extra: pip install 'fedrl[mujoco]'")
pytest.importorskip("gymnasium", reason="needs the extra: pip install 'fedrl[mujoco]'")

from support.mujoco_worlds import NAMES, gentle, own, same, seeds

from fedrl.core.types import UserError
from fedrl.envs.control.mujoco import (
    LONGEST_SPREAD,
    TASKS,
    Settings,
    Trajectories,
    World,
    _build,
    _load_mujoco,
    states_of,
)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("factor", [1 - LONGEST_SPREAD, 1 + LONGEST_SPREAD])
def test_the_longest_and_the_shortest_body_start_above_the_floor(name: str, factor: float) -> None:
    world = World(Settings(name, length_spread=LONGEST_SPREAD), clients=1, seed=0)
    engine, assets = _load_mujoco(name)
    model = _build(engine, (assets / TASKS[name].xml).read_text(), factor, 1.0)
    world.models = [model]
    body = world.place(0, 0, model.qpos0, np.zeros(model.nv))
    assert body.data.ncon == 0
    state, _, ended = world.step([body], states_of([body]), np.zeros((1, model.nu), np.float32))
    assert not ended[0]
    assert np.isfinite(state).all()


@pytest.mark.slow
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


def test_gravity_differs_by_client_and_a_body_in_the_air_falls_by_it(name: str) -> None:
    """Free fall: after one step of MuJoCo from rest the root has the velocity g·t, in its own g."""
    world = World(Settings(name, gravity_spread=0.5), clients=3, seed=2)
    assert len(set(world.gravities)) == 3
    assert (abs(world.gravities - 1) <= 0.5).all()
    for client, factor in enumerate(world.gravities):
        model = world.models[client]
        assert model.opt.gravity[2] == pytest.approx(-9.81 * factor)
        high = model.qpos0 + np.eye(model.nq)[1] * 5.0
        body = world.place(0, client, high, np.zeros(model.nv))
        assert body.data.qacc[1] == pytest.approx(-9.81 * factor, rel=0.05)
    assert [m.opt.gravity[2] for m in World(Settings(name), 2, 2).models] == [-9.81, -9.81]


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


@pytest.mark.slow
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
        ("gravity_spread", 1.0),
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
