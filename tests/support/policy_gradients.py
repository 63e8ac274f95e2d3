"""Small worlds of every sort for policy gradients, and the methods that play them."""

from __future__ import annotations

import numpy as np

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.classics.fednova import FedNova
from fedrl.algorithms.classics.fedpg_br import FedPGBR
from fedrl.algorithms.classics.fedprox import FedProx
from fedrl.algorithms.classics.scaffold import Scaffold
from fedrl.algorithms.policy_gradient import PolicyGradient
from fedrl.core.types import Job
from fedrl.engines.in_process import InProcess
from fedrl.envs.control import cartpole, random_mdp
from fedrl.envs.interfaces import Trajectories
from fedrl.federation import client_sampling, round_loop
from support.rounds import Memory

KINDS = ("random_mdp", "cartpole", "gridworld")
CLASSICS = (FedProx, Scaffold, FedNova, FedPGBR)


class Plain(PolicyGradient):
    """PAvg in two lines."""

    def direction(self, now):
        return now.gradient()


class Gridworld:
    """Three rooms in a row, in NumPy: left, stay, right; the last room pays, and ends it.

    It has `rewards` and an `initial` distribution, as such worlds do, and is still played.
    """

    continuous = False
    observation_size, action_size, horizon, gamma = 3, 3, 6, 0.9
    rewards, initial = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])

    def __init__(self, clients: int = 3) -> None:
        self.clients = clients

    def params(self, clients):
        return {"slip": np.array([0.1 * client for client in clients], np.float32)}

    def rollout(self, act, params, seeds):
        batch, steps = len(seeds), self.horizon
        record = Trajectories(
            np.zeros((batch, steps, 3), np.float32),
            np.zeros((batch, steps), np.int32),
            np.zeros((batch, steps), np.float32),
            np.zeros((batch, steps), np.float32),
        )
        randoms = [np.random.default_rng(int(seed)) for seed in seeds]
        slip = np.array([r.choice(own) for r, own in zip(randoms, params["slip"], strict=True)])
        noise = np.array([r.random((2, steps), np.float32) for r in randoms])
        room, alive = np.zeros(batch, int), np.arange(batch)
        for t in range(steps):
            seen = np.eye(3, dtype=np.float32)[room[alive]]
            actions = act(seen, noise[alive, 0, t], alive)
            moves = np.where(noise[alive, 1, t] < slip[alive], 0, actions - 1)
            room[alive] = np.clip(room[alive] + moves, 0, 2)
            record.observations[alive, t], record.actions[alive, t] = seen, actions
            record.rewards[alive, t], record.mask[alive, t] = self.rewards[room[alive]], 1
            alive = alive[room[alive] < 2]
            if not alive.size:
                break
        return record


def make_world(kind: str, clients: int = 3):
    if kind == "gridworld":
        return Gridworld(clients)
    if kind == "cartpole":
        return cartpole.World(cartpole.Settings(horizon=20, length_spread=0.4), clients, 0)
    return random_mdp.World(random_mdp.Settings(horizon=10, kappa=1.0), clients, 0)


def make(cls, kind: str = "random_mdp", clients: int = 3, **fields):
    """A method over a small world; FedPG-BR with a world for its server."""
    small = {"trajectories": 4} if cls is FedPGBR else {"local_steps": 3}
    settings = cls.Settings(**{"lr": 0.02, "eval_episodes": 2, **small, **fields})
    method = cls(settings, make_world(kind, clients), 3, [[i] for i in range(clients)])
    if cls is FedPGBR:
        method.server_world = lambda: make_world(kind, clients + 1)
    return method


def played(method, rounds: int = 2, start=None, engine=None, **fields) -> Memory:
    store = Memory(start)
    round_loop.run(
        client_sampling.Settings(**({"clients": method.world.clients} | fields)),
        method,
        engine or InProcess(method),
        aggregate.mean,
        store,
        seed=5,
        rounds=rounds,
    )
    return store


def jobs(method, state=None, round: int = 1):
    sent = method.broadcast(state or method.init(0), round)
    return [Job(c, sent, None, 100 + c) for c in range(method.world.clients)]
