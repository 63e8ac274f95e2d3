"""Worlds of one's own on the host: one class plays with policy gradients and with Q-learners."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learners are compiled by numba")
pytest.importorskip("jax", reason="policy gradients are compiled by JAX")
from support import array_gridworld, gridworld
from support.array_gridworld import ArrayGridworld
from support.gridworld import Gridworld, Settings

from fedrl.cli import call
from fedrl.core.types import UserError
from fedrl.envs.interfaces import HostWorld
from fedrl.envs.simulated import EnvironmentWorld, repeats

BOTH = pytest.mark.parametrize("world", [Gridworld, ArrayGridworld])


def walk(world, seeds, clients):
    def act(observations, noise, alive):
        return ((noise + observations.sum(1)) * 100).astype(np.int64) % 4

    return world.rollout(act, {"client": np.asarray(clients)}, np.asarray(seeds, np.uint64))


def test_a_grid_is_under_fifty_lines():
    assert len(Path(gridworld.__file__).read_text().splitlines()) < 60
    assert len(Path(array_gridworld.__file__).read_text().splitlines()) < 70
    code = Path(gridworld.__file__).read_text().partition("MOVES")[2]
    assert len([line for line in code.splitlines() if line.strip()]) < 50


def test_one_by_one_or_vectorised_is_the_same_world():
    one, other = (world(Settings(), 5, 3) for world in (Gridworld, ArrayGridworld))
    assert isinstance(one, HostWorld)
    seeds, clients = np.arange(30), np.arange(60).reshape(30, 2) % 5
    played = walk(one, seeds, clients)
    for mine, its in zip(played, walk(other, seeds, clients)):
        np.testing.assert_array_equal(mine, its)
    lengths = played.mask.sum(1)
    assert lengths.min() < 20 == lengths.max()


@BOTH
def test_a_trajectory_is_its_own(world):
    made = world(Settings(), 5, 3)
    seeds, clients = np.arange(30), np.arange(60).reshape(30, 2) % 5
    played, order = walk(made, seeds, clients), np.random.default_rng(0).permutation(30)
    for mine, its in zip(played, walk(made, seeds[order], clients[order])):
        np.testing.assert_array_equal(mine[order], its)
    for mine, its in zip(played, walk(made, seeds[7:8], clients[7:8])):
        np.testing.assert_array_equal(mine[7], its[0])
    assert repeats(made, 0)


@BOTH
def test_the_simulator_tells_ends_and_starts(world):
    """Alone with plain numbers as in a batch with arrays; who is over must be restarted."""
    made = world(Settings(), 5, 3)
    batch, alone = made.simulator([[0, 1], [2]]), made.simulator([[0, 1]])
    np.testing.assert_array_equal(batch.reset([4, 5])[0], alone.reset([4])[0])
    ends = 0
    for action in np.random.default_rng(1).integers(4, size=200).tolist():
        after = batch.step(np.array([action]), np.array([0]))
        seen, reward, terminated, truncated = alone.step_alone(action)
        np.testing.assert_array_equal(after.observations[0], seen)
        assert (after.rewards[0], after.terminated[0], after.truncated[0]) == (
            reward,
            terminated,
            truncated,
        )
        assert [type(x) for x in (reward, terminated, truncated)] == [float, bool, bool]
        if terminated or truncated:
            ends += 1
            if world is Gridworld:
                with pytest.raises(ValueError, match="restarted first"):
                    batch.step(np.array([0]), np.array([0]))
                with pytest.raises(ValueError, match="not over"):
                    alone.step_alone(0)
            row = np.array([0])
            np.testing.assert_array_equal(batch.restart(row), alone.restart(row))
    assert ends > 5


def test_clients_play_their_own_environments():
    made = Gridworld(Settings(), 6, 3)
    for clients in ([4], [1, 5]):
        mine = made.of_clients(clients)
        simulator = mine.simulator([mine.own])
        simulator.reset([0])
        goals = set()
        for _ in range(20):
            simulator.restart(np.zeros(1, np.int64))
            goals.add(tuple(simulator._held[0][1].goal))
        assert goals == {tuple(made.goals[client]) for client in clients}
    assert made.own == range(6)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["Gridworld", "ArrayGridworld"])
@pytest.mark.parametrize("method", ["pavg", "fedsvrpg-m", "fedqhd", "feddqn"])
def test_a_file_of_ones_own_plays_with_every_family(world, method, tmp_path, capsys):
    """A world outside of fedrl, named by its path."""
    file = Path((gridworld if world == "Gridworld" else array_gridworld).__file__)
    recipe = tmp_path / "mine.toml"
    few = "local_steps = 2" if method in ("pavg", "fedsvrpg-m") else "episodes = 2"
    recipe.write_text(
        f'rounds = 1\n[federation]\nclients = 3\n[algorithm]\nname = "{method}"\n{few}\n'
        f'eval_episodes = 2\n[world]\nname = "{file}:{world}"\nsize = 3\n'
    )
    assert call(["run", str(recipe), "--out", str(tmp_path / "runs")]) == 0
    assert "eval/return" in (next((tmp_path / "runs").glob("*/*")) / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_policy_gradients_find_the_goal():
    """Two clients, one corner: twice the mean return of the first policy at least."""
    from fedrl.algorithms.momentum.algorithm import Momentum
    from fedrl.algorithms.momentum.settings import Settings as Method
    from fedrl.core.types import Job

    world = Gridworld(Settings(size=3), 2, 0)
    world.goals[:] = 2
    settings = Method(
        name="pavg", beta=1.0, lr=0.2, local_steps=10, trajectories=8, standardize=True,
        eval_episodes=100,
    )  # fmt: skip
    method = Momentum(settings, world, 12, [[0], [1]])
    state = method.init(0)
    before = method.evaluate([state], [[0, 1]], 0, 0)["eval/return"]
    for round in range(1, 13):
        sent = method.broadcast(state, round)
        results = method.local_many([Job(c, sent, None, 10 * round + c) for c in range(2)])
        mean = {n: sum(r.update[n] for r in results) / 2 for n in results[0].update}
        state = method.step(state, mean, round)
    after = method.evaluate([state], [[0, 1]], 13, 0)["eval/return"]
    assert before < 0.1
    assert after > 0.6


def test_continuous_actions_are_no_choice_for_q_learners():
    from fedrl.algorithms.qhd import fedqhd
    from fedrl.envs.simulated import EnvironmentWorld

    world = EnvironmentWorld("stick", 2, 3, 1, 10, continuous=True)
    with pytest.raises(UserError, match=r"stick has continuous actions.*pavg"):
        fedqhd.FedQHD(fedqhd.Settings(), world, [[0], [1]])


class _OneNumber:
    def reset(self, *, seed: int):
        return np.zeros(1), {}

    def step(self, action: int):
        return np.zeros(1), 0.0, True, False, {}


class _Mistaken(EnvironmentWorld):
    def environment(self, client: int) -> _OneNumber:
        return _OneNumber()


def test_observations_of_another_size_are_refused_and_not_broadcast():
    world = _Mistaken("mistaken", 1, observation_size=3, action_size=2, horizon=5)
    with pytest.raises(UserError, match=r"mistaken gives .* \(1,\); its observation_size is 3"):
        world.simulator([[0]]).reset([0])


def test_a_world_without_environments_says_what_it_lacks():
    with pytest.raises(UserError, match=r"EnvironmentWorld must say environment\(client\)"):
        EnvironmentWorld("bare", 1, 3, 2, horizon=5).simulator([[0]]).reset([0])
