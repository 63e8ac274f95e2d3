"""Q-learning on the base with tables: an update is the formula, for every entry at once."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learning needs the extra classic")
pytest.importorskip("jax", reason="Q-learning needs the extra classic")

from support.rounds import play, same

from fedrl.algorithms.q_learning import QLearning, Settings
from fedrl.core.types import Job, UserError
from fedrl.envs.control import random_mdp
from fedrl.envs.control.random_mdp import World

pytestmark = pytest.mark.slow


def mdps(clients: int = 3, **settings) -> World:
    how = {"states": 4, "actions": 3, "kappa": 1.0, "kernel": "bernoulli"} | settings
    return World(random_mdp.Settings(**how), clients, seed=2)


def made(world: World, cls: type[QLearning] = QLearning, pools=None, **settings) -> QLearning:
    own = pools or [[client] for client in range(world.clients)]
    return cls(cls.Settings(**settings), world, 3, own)


def any_table(world: World, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=world.rewards.shape)


def job(algorithm: QLearning, table: np.ndarray, client: int = 0, seed: int = 5) -> Job:
    state = algorithm.init(0) | {"theta": {"table": table}}
    return Job(client, algorithm.broadcast(state, 1), None, seed)


def iterated(table, kernel, rewards, gamma: float, lr: float, steps: int) -> np.ndarray:
    """The formula, entry by entry."""
    for _ in range(steps):
        before = table.copy()
        for s in range(table.shape[0]):
            for a in range(table.shape[1]):
                ahead = sum(p * before[t].max() for t, p in enumerate(kernel[s, a]))
                table[s, a] = (1 - lr) * before[s, a] + lr * (rewards[s, a] + gamma * ahead)
    return table


@pytest.mark.parametrize("double", [True, False])
def test_exact_updates_are_q_iteration(double):
    world = mdps()
    algorithm = made(world, lr=0.3, local_steps=4, double=double)
    table = any_table(world)
    for client in range(3):
        found = algorithm.local(job(algorithm, table, client)).update["table"]
        wanted = iterated(table.copy(), world.kernels[client], world.rewards, 0.9, 0.3, 4)
        np.testing.assert_allclose(table + found, wanted, atol=1e-13)
        assert found.dtype == np.float64


def test_many_clients_are_each_as_alone():
    world = mdps()
    algorithm = made(world, samples=2)
    jobs = [job(algorithm, any_table(world), client, 7 + client) for client in range(3)]
    for together, one in zip(algorithm.local_many(jobs), jobs, strict=True):
        alone = algorithm.local(one)
        np.testing.assert_allclose(together.update["table"], alone.update["table"], atol=1e-14)
        assert together.metrics == pytest.approx(alone.metrics)


def test_drawn_next_states_of_a_sure_world_are_the_expectation():
    world = mdps()
    world.kernels[:] = world.kernels == world.kernels.max(-1, keepdims=True)
    table = any_table(world)
    exact, drawn = (
        made(world, lr=0.3, samples=samples).local_many([job(made(world), table)])[0]
        for samples in (0, 3)
    )
    np.testing.assert_allclose(exact.update["table"], drawn.update["table"], atol=1e-13)
    assert exact.metrics["env/steps"] == 0
    assert drawn.metrics["env/steps"] == 10 * 3 * 4 * 3  # updates × samples × states × actions


def test_drawn_next_states_have_the_expectation_as_their_mean():
    """Six standard errors of the mean of 40,000 draws, for each entry by its own variance."""
    world, count = mdps(clients=1), 40_000
    table = any_table(world)
    algorithm = made(world, lr=1.0, local_steps=1, samples=count)
    found = table + algorithm.local(job(algorithm, table)).update["table"]
    kernel, best = world.kernels[0], table.max(-1)
    mean = world.rewards + 0.9 * kernel @ best
    spread = 0.9 * np.sqrt(kernel @ best**2 - (kernel @ best) ** 2)
    assert (np.abs(found - mean) <= 6 * spread / np.sqrt(count) + 1e-12).all()
    assert np.abs(found - mean).max() > 0
    other = algorithm.local(job(algorithm, table, seed=6)).update["table"]
    assert not np.array_equal(table + other, found)


def test_a_poisoned_client_has_rewards_of_the_other_sign():
    world = mdps()
    algorithm, table = made(world, lr=0.3, local_steps=2), any_table(world)
    found = table + algorithm.poisoned(job(algorithm, table)).update["table"]
    wanted = iterated(table.copy(), world.kernels[0], -world.rewards, 0.9, 0.3, 2)
    np.testing.assert_allclose(found, wanted, atol=1e-13)


def test_a_centralized_client_learns_in_the_mean_environment():
    world = mdps()
    algorithm, table = made(world, pools=[[0, 1, 2]], lr=0.3, local_steps=2), any_table(world)
    found = table + algorithm.local(job(algorithm, table)).update["table"]
    wanted = iterated(table.copy(), world.kernels.mean(0), world.rewards, 0.9, 0.3, 2)
    np.testing.assert_allclose(found, wanted, atol=1e-13)


def test_evaluation_is_exact_and_of_the_greedy_policy():
    world = mdps()
    algorithm, table = made(world), any_table(world)
    policy = (np.arange(3) == table.argmax(-1)[:, None]).astype(float)
    wanted = [
        random_mdp.performance(policy, kernel, world.rewards, world.initial, 0.9)
        for kernel in world.kernels
    ]
    state = {"theta": {"table": table}}
    np.testing.assert_allclose(algorithm.evaluate_clients(state, 0, 1), wanted)
    told = algorithm.evaluate([state], [[0, 1, 2]], 0, 0)
    assert told["eval/return"] == pytest.approx(np.mean(wanted))
    assert told["eval/return_min"] == pytest.approx(np.min(wanted))
    alone = algorithm.evaluate([state] * 3, [[0], [1], [2]], 0, 0)
    assert alone["eval/return_own"] == pytest.approx(np.mean(wanted))


def test_rounds_of_a_federation_and_of_clients_alone():
    world = mdps()
    algorithm = made(world, lr=0.5)
    together = play(algorithm, rounds=60, clients=3)
    alone = play(algorithm, rounds=60, clients=3, kind="independent")
    ends = [state["theta"]["table"] for state in alone.last.states]
    for kernel, end in zip(world.kernels, ends, strict=True):
        zero = np.zeros_like(end)
        np.testing.assert_allclose(
            end, iterated(zero, kernel, world.rewards, 0.9, 1.0, 300), atol=1e-8
        )
    assert np.abs(together.last.states[0]["theta"]["table"] - ends[0]).max() > 1e-3
    same(play(algorithm, rounds=60, clients=3).last.states[0], together.last.states[0])


def test_a_table_of_ones_own_world_is_enough():
    """Any world with the names of `TabularWorld`."""

    class Two:
        """Stay or go, in one of two states; going pays."""

        clients, horizon, gamma = 1, 10, 0.5
        rewards = np.array([[0.0, 1.0], [0.0, 1.0]])
        initial = np.array([1.0, 0.0])

        def params(self, clients):
            kernel = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
            return {
                "kernel": np.repeat(kernel[None], len(clients), 0),
                "reward": np.repeat(self.rewards[None], len(clients), 0),
            }

    algorithm = QLearning(Settings(lr=1.0, local_steps=50), Two(), 1, [[0]])
    result = algorithm.local(Job(0, algorithm.broadcast(algorithm.init(0), 1), None, 0))
    np.testing.assert_allclose(result.update["table"], [[1, 2], [1, 2]])


def test_settings_that_networks_alone_read_do_no_harm():
    with pytest.raises(UserError, match=r"algorithm\.local_steps"):
        Settings(local_steps=0)
    made(mdps(), huber=0.01)
    world = mdps()
    bent, square = (made(world, huber=huber) for huber in (0.01, 0.0))
    table = any_table(world)
    same(
        bent.local(job(bent, table)).update,
        square.local(job(square, table)).update,
    )
