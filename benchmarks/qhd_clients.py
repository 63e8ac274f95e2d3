"""What `fedqhd.py` measures: clients, and rounds of a few of them.

On CartPole (|A| = 2, d = 4, TD updates on 16 transitions) in NumPy, the same compiled, and what the
core could do at most; on LunarLander QHD, a DQN, and Gymnasium's loop without a learner.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.qhd import encoders, td_kernels
from fedrl.algorithms.qhd import episodes as qhd_episodes
from fedrl.algorithms.qhd.dqn import episodes as dqn_episodes
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.fedqhd import FedQHD
from fedrl.algorithms.qhd.q_learning_kernels import Rules
from fedrl.core.types import Job
from fedrl.envs.discrete import classic_kernels as worlds
from fedrl.envs.discrete.worlds import World

BATCH, ACTIONS, SIZE, CAPACITY = 16, 2, 4, 10_000
RULES = Rules(
    gamma=0.99,
    lr=0.1,
    batch=BATCH,
    gradient_steps=1,
    sync_steps=0,
    sync_episodes=5,
    epsilon_decay=1.0,
    epsilon_floor=0.1,
    limit=50,
)
SHIFT, SPREAD = np.zeros(SIZE, np.float32), np.array([2.4, 3, 0.21, 3], np.float32)
CHAINS, DEGREE = 8, 16
ONE, TWO, THREE, FOUR = (np.float32(x) for x in (1, 2, 3, 4))


class NumpyClient:
    """The same learner in NumPy: one product and one cosine for s and s' together."""

    def __init__(self, features: int, seed: int, kind: type[np.floating]) -> None:
        encoder = encoders.draw(SIZE, features, 0.5, seed)
        self.kind = kind
        self.omega, self.phase = encoder.omega.astype(kind), encoder.phase.astype(kind)
        self.scale = kind(features**-0.5)
        self.online = np.zeros((features, ACTIONS), kind)
        self.target = np.zeros_like(self.online)
        self.states = np.zeros((2, CAPACITY, SIZE), np.float32)  # s and s'
        self.rewards, self.terminal = np.zeros(CAPACITY, np.float32), np.zeros(CAPACITY, bool)
        self.actions = np.zeros(CAPACITY, np.int64)
        self.random = np.random.default_rng(seed)
        self.stored = 0

    def encode(self, states: np.ndarray) -> np.ndarray:
        angles = states.astype(self.kind) @ self.omega
        angles += self.phase
        np.cos(angles, out=angles)
        angles *= self.scale
        return angles

    def update(self) -> None:
        rows = self.random.integers(min(self.stored, CAPACITY), size=BATCH)
        waves = self.encode(self.states[:, rows].reshape(2 * BATCH, SIZE))
        here, ahead = waves[:BATCH], waves[BATCH:]
        every, actions = np.arange(BATCH), self.actions[rows]
        best = (ahead @ self.online).argmax(1)
        goal = self.rewards[rows] + RULES.gamma * (ahead @ self.target)[every, best] * (
            ~self.terminal[rows]
        )
        error = goal - (here @ self.online)[every, actions]
        steps = np.zeros((BATCH, ACTIONS), self.kind)
        steps[every, actions] = RULES.lr * error
        self.online += here.T @ steps

    def episodes(self, count: int) -> int:
        before, state, seen = self.stored, np.empty(SIZE), np.empty((2, SIZE), np.float32)
        for episode in range(count):
            worlds.reset(worlds.CARTPOLE, state, self.random.random(SIZE))
            worlds.observe(worlds.CARTPOLE, state, seen[0])
            seen[0] /= SPREAD
            length, over = 0, False
            while not over and length < RULES.limit:
                action = int((self.encode(seen[:1]) @ self.online)[0].argmax())
                if self.random.random() < RULES.epsilon_floor:
                    action = int(self.random.integers(ACTIONS))
                reward, over = worlds.step(worlds.CARTPOLE, state, action)
                worlds.observe(worlds.CARTPOLE, state, seen[1])
                seen[1] /= SPREAD
                place = self.stored % CAPACITY
                self.states[:, place], self.actions[place] = seen, action
                self.rewards[place], self.terminal[place] = reward, over
                self.stored, length = self.stored + 1, length + 1
                seen[0] = seen[1]
                if self.stored >= BATCH:
                    self.update()
            if episode % RULES.sync_episodes == 0:
                self.target[:] = self.online
        return self.stored - before


class CompiledClient:
    def __init__(self, features: int, seed: int) -> None:
        encoder = encoders.draw(SIZE, features, 0.5, seed)
        self.blocks = td_kernels.blocks(encoders.lanes(encoder))
        self.learner = td_kernels.fresh(ACTIONS, features, SIZE, CAPACITY, seed, epsilon=0.1)

    def episodes(self, count: int) -> int:
        _, lengths = qhd_episodes.compiled_episodes(
            worlds.CARTPOLE, count, self.blocks, SHIFT, SPREAD, self.learner, RULES
        )
        return int(lengths.sum())


@njit(error_model="numpy", fastmath={"contract", "nsz"})
def polynomial(x: np.ndarray, out: np.ndarray, repeats: int) -> None:
    """CHAINS · DEGREE fused multiply-adds per number; the chains hide each other's latency."""
    for _ in range(repeats):
        for j in range(x.size):
            z = x[j]
            a, b, c, d = z, z + ONE, z + TWO, z + THREE
            e, f, g, h = z - ONE, z - TWO, z - THREE, z + FOUR
            for _ in range(DEGREE):
                a, b, c, d = a * z + ONE, b * z + ONE, c * z + ONE, d * z + ONE
                e, f, g, h = e * z + ONE, f * z + ONE, g * z + ONE, h * z + ONE
            out[j] = (a + b) + (c + d) + (e + f) + (g + h)


def limit(repeats: int) -> tuple[float, float]:
    """(operations, CPU seconds), a fused multiply-add as one operation."""
    x = np.linspace(-0.9, 0.9, 1024).astype(np.float32)
    out = np.empty_like(x)
    polynomial(x, out, 1)
    start = time.process_time()
    polynomial(x, out, repeats)
    return float(CHAINS * DEGREE * x.size * repeats), time.process_time() - start


def operations(features: int) -> float:
    """Arithmetic of a step: d + 8 per cosine, the readouts, the step of W."""
    cosine = SIZE + 8
    transition = 2 * cosine + 1 + 2 * ACTIONS + 1
    return features * (BATCH * transition + (1 - RULES.epsilon_floor) * (cosine + ACTIONS))


def falls(steps: int) -> float:
    """Gymnasium's own loop with random actions, no learner and no wrappers."""
    from gymnasium.envs.box2d.lunar_lander import LunarLander

    env, random = LunarLander(), np.random.default_rng(0)
    env.reset(seed=0)
    for action in random.integers(4, size=steps).tolist():
        if env.step(action)[2]:
            env.reset()
    return float(steps)


def landing_qhd(world: World, features: int, updates: int) -> Callable[[], float]:
    encoder = encoders.draw(8, features, 2.0, 1)
    blocks = td_kernels.blocks(encoders.lanes(encoder))
    learner = td_kernels.fresh(4, features, 8, 10_000, 7, epsilon=0.1)
    rules = Rules(0.99, 0.01, 16, updates, 500, 0, 1.0, 0.1, world.limit)
    return lambda: float(qhd_episodes.run_episodes(world, 5, blocks, learner, rules, 3)[1].sum())


def landing_dqn(world: World, updates: int) -> Callable[[], float]:
    shape = (8, 128, 128, 4)
    learner = dqn.fresh(shape, dqn.draw_weights(shape, 1), 10_000, 7, epsilon=0.1)
    rules = Rules(0.99, 3e-4, 32, updates, 500, 0, 1.0, 0.1, world.limit, huber=1.0)
    return lambda: float(dqn_episodes.run_episodes(world, 5, shape, learner, rules, 3)[1].sum())


class Rounds:
    """Rounds of one method, client after client in one thread, nothing written."""

    def __init__(self, algorithm: FedQHD, clients: int) -> None:
        self.algorithm, self.number = algorithm, 0
        self.state = algorithm.init(0)
        self.kept: dict[int, Any] = dict.fromkeys(range(clients))

    def advance(self) -> float:
        self.number += 1
        sent = self.algorithm.broadcast(self.state, self.number)
        done = [
            self.algorithm.local(Job(client, sent, state, 1000 * self.number + client))
            for client, state in self.kept.items()
        ]
        self.kept = {one.client: one.state for one in done}
        mean = aggregate.mean((one.update, one.weight) for one in done)
        self.state = self.algorithm.step(self.state, mean, self.number)
        return 1.0
