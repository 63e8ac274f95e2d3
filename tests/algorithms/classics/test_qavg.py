"""QAvg's mathematics: what its rounds converge to, how fast, and what E and κ cost.

Everything is computed exactly, by value iteration and by loops of the test's own.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learning needs the extra classic")
pytest.importorskip("jax", reason="Q-learning needs the extra classic")

from support.rounds import play

from fedrl.algorithms.classics.qavg import QAvg
from fedrl.core.types import Job, UserError
from fedrl.envs.control import random_mdp
from fedrl.envs.control.random_mdp import World

pytestmark = pytest.mark.slow

GAMMA = 0.9


def mdps(clients: int = 4, kappa: float = 1.0) -> World:
    how = random_mdp.Settings(states=5, actions=3, gamma=GAMMA, kappa=kappa, kernel="bernoulli")
    return World(how, clients, seed=1)


def made(world: World, **settings) -> QAvg:
    return QAvg(QAvg.Settings(**settings), world, 1, [[c] for c in range(world.clients)])


def backup(table, kernel, rewards):
    """T Q = R + γ P max Q."""
    return rewards + GAMMA * kernel @ table.max(-1)


def optimum(kernel, rewards):
    """Q* by value iteration to rounding: γ^400 is 5e-19."""
    table = np.zeros_like(rewards)
    for _ in range(400):
        table = backup(table, kernel, rewards)
    return table


def rounds(world: World, algorithm: QAvg, count: int, start=None) -> list[np.ndarray]:
    """The server's Q after every round."""
    state, found = algorithm.init(0), []
    if start is not None:
        state = state | {"theta": {"table": start}}
    for round in range(1, count + 1):
        sent = algorithm.broadcast(state, round)
        jobs = [Job(c, sent, None, 0) for c in range(world.clients)]
        changes = [result.update["table"] for result in algorithm.local_many(jobs)]
        state = algorithm.step(state, {"table": np.mean(changes, 0)}, round)
        found.append(state["theta"]["table"])
    return found


def fixed_point(world: World, lr: float, steps: int, count: int = 4000) -> np.ndarray:
    """What rounds of E local updates converge to, by loops of this test's own."""
    table = np.zeros_like(world.rewards)
    for _ in range(count // steps):
        own = []
        for kernel in world.kernels:
            q = table
            for _ in range(steps):
                q = (1 - lr) * q + lr * backup(q, kernel, world.rewards)
            own.append(q)
        table = np.mean(own, 0)
    return table


def test_with_one_update_a_round_it_converges_to_the_mean_environments_optimum():
    world = mdps()
    wanted = optimum(world.kernels.mean(0), world.rewards)
    found = rounds(world, made(world, lr=0.5, local_steps=1), 500)
    np.testing.assert_allclose(found[-1], wanted, atol=1e-8)
    for client in range(4):  # which no client's own optimum is
        own = optimum(world.kernels[client], world.rewards)
        assert np.abs(own - wanted).max() > 0.1


@pytest.mark.parametrize("lr", [0.2, 0.7, 1.0])
def test_every_round_of_one_update_contracts(lr):
    """‖Q_{t+1} − Q*‖∞ ≤ (1 − lr (1 − γ)) ‖Q_t − Q*‖∞, from anywhere."""
    world = mdps()
    best = optimum(world.kernels.mean(0), world.rewards)
    start = 5 * np.random.default_rng(0).normal(size=best.shape)
    path = rounds(world, made(world, lr=lr, local_steps=1), 30, start)
    gaps = [np.abs(table - best).max() for table in (start, *path)]
    for before, after in pairwise(gaps):
        assert after <= (1 - lr * (1 - GAMMA)) * before + 1e-12


def test_rounds_of_any_e_contract_to_one_point():
    """Each client's E updates contract by (1 − lr (1 − γ))^E, and so does their mean."""
    world, factor = mdps(), (1 - 0.5 * (1 - GAMMA)) ** 6
    algorithm = made(world, lr=0.5, local_steps=6)
    random = np.random.default_rng(0)
    one, other = (random.normal(size=(5, 3)) for _ in range(2))
    paths = (rounds(world, algorithm, 5, start) for start in (one, other))
    gap = np.abs(one - other).max()
    for a, b in zip(*paths, strict=True):
        after = np.abs(a - b).max()
        assert after <= factor * gap + 1e-12
        gap = after


def test_one_client_is_q_iteration():
    """lr = 1: E updates are E backups. Any lr: the client's own optimum."""
    world = mdps(clients=1)
    found = rounds(world, made(world, lr=1.0, local_steps=3), 2)[-1]
    wanted = np.zeros_like(world.rewards)
    for _ in range(6):
        wanted = backup(wanted, world.kernels[0], world.rewards)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    found = rounds(world, made(world, lr=0.5, local_steps=8), 80)[-1]
    np.testing.assert_allclose(found, optimum(world.kernels[0], world.rewards), atol=1e-8)


@pytest.mark.parametrize("steps", [2, 8])
def test_the_fixed_point_is_that_of_the_papers_recursion(steps):
    world = mdps()
    found = rounds(world, made(world, lr=0.5, local_steps=steps), 600 // steps)[-1]
    np.testing.assert_allclose(found, fixed_point(world, 0.5, steps), atol=1e-10)


def gap(kappa: float, lr: float, steps: int) -> float:
    """How far from the mean environment's optimum QAvg ends."""
    world = mdps(kappa=kappa)
    best = optimum(world.kernels.mean(0), world.rewards)
    return float(np.abs(fixed_point(world, lr, steps) - best).max())


def test_what_is_left_grows_with_e_and_with_heterogeneity():
    """Exact numbers of one instance, each step of either at least a tenth more."""
    by_steps = [gap(1.0, 0.5, steps) for steps in (1, 2, 4, 8, 16)]
    assert by_steps[0] < 1e-10
    by_kappa = [gap(kappa, 0.5, 8) for kappa in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert by_kappa[0] < 1e-10
    for series in (by_steps, by_kappa):
        assert series[1] > 1e-4
        assert all(b > 1.1 * a for a, b in pairwise(series[1:])), series


def test_shorter_steps_leave_less():
    """To first order what is left is proportional to lr (E − 1): half of it at half of lr."""
    gaps = [gap(1.0, lr, 4) for lr in (0.4, 0.2, 0.1, 0.05)]
    ratios = [a / b for a, b in pairwise(gaps)]
    assert all(1.5 < ratio < 3 for ratio in ratios), ratios
    assert abs(ratios[-1] - 2) < abs(ratios[0] - 2) + 1e-6


def test_the_reported_error_is_the_distance_to_the_optimum():
    world = mdps()
    store = play(made(world, lr=0.5, local_steps=4), rounds=5, clients=4)
    table = store.last.states[0]["theta"]["table"]
    best = optimum(world.kernels.mean(0), world.rewards)
    told = store.rounds[-1].metrics["eval/q_error"]
    assert told == pytest.approx(np.abs(table - best).max(), abs=1e-9)


def test_double_is_another_method():
    with pytest.raises(UserError, match=r"algorithm\.double"):
        QAvg.Settings(double=True)
