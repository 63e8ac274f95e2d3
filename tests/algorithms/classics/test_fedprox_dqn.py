"""FedProx for Q-learning: the pull in closed form, and nothing where μ is 0."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learning needs the extra classic")
pytest.importorskip("jax", reason="Q-learning needs the extra classic")

from fedrl.algorithms.classics.fedprox_dqn import FedProxDQN
from fedrl.algorithms.q_learning import QLearning
from fedrl.core.types import Job, UserError
from fedrl.envs.control import random_mdp
from fedrl.envs.discrete.worlds import Settings as DiscreteSettings
from fedrl.envs.discrete.worlds import World as Discrete

pytestmark = pytest.mark.slow

MDP = random_mdp.World(random_mdp.Settings(states=4, actions=3, gamma=0.9), 1, 0)
POLE = Discrete(DiscreteSettings(), 1, 0)
PLAY = {
    "hidden": (8, 8),
    "episodes": 3,
    "batch": 8,
    "replay": 200,
    "epsilon_decay": 1.0,
    "lr": 0.01,
}


def change(cls, world, **settings) -> np.ndarray:
    algorithm = cls(cls.Settings(**settings), world, 1, [[0]])
    sent = algorithm.broadcast(algorithm.init(1), 1)
    (found,) = algorithm.local(Job(0, sent, None, 5)).update.values()
    return found


@pytest.mark.parametrize("mu", [0.5, 3.0])
def test_updates_of_a_table_by_hand(mu):
    """Q ← Q − lr [(Q − T Q) + μ (Q − Q_r)], from Q_r = 0."""
    q = np.zeros((4, 3))
    for _ in range(5):
        target = MDP.rewards + 0.9 * MDP.kernels[0] @ q.max(-1)
        q = q - 0.2 * ((q - target) + mu * q)
    np.testing.assert_allclose(change(FedProxDQN, MDP, mu=mu, lr=0.2, local_steps=5), q, atol=1e-13)


def test_without_a_pull_it_is_the_base():
    how = {"lr": 0.2, "local_steps": 5}
    plain = change(QLearning, MDP, **how)
    np.testing.assert_allclose(change(FedProxDQN, MDP, mu=0.0, **how), plain, atol=1e-14)
    plain, pulled = (change(QLearning, POLE, **PLAY), change(FedProxDQN, POLE, mu=0.0, **PLAY))
    np.testing.assert_allclose(pulled, plain, atol=1e-5)


def test_a_strong_pull_keeps_a_network_near_the_servers():
    """Adam's steps are of length lr whatever the gradient's size: a pull of 100 turns them back."""
    free, held = (change(FedProxDQN, POLE, mu=mu, **PLAY) for mu in (0.0, 100.0))
    assert np.abs(held).mean() < 0.5 * np.abs(free).mean()


def test_a_push_is_refused():
    with pytest.raises(UserError, match=r"algorithm\.mu"):
        FedProxDQN.Settings(mu=-0.1)
