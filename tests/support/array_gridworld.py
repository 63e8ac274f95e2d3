"""The grid of `gridworld`, vectorised: a `Simulator` that moves all walkers in one NumPy call."""

from __future__ import annotations

import numpy as np

from fedrl.envs.interfaces import Step
from fedrl.envs.simulated import EpisodeSeeds, SimulatedWorld
from support.gridworld import MOVES, Settings


class Walkers:
    def __init__(self, world: ArrayGridworld, pools) -> None:
        self.world, self.count, self.seeds = world, len(pools), EpisodeSeeds(pools)
        self.at, self.goal = np.zeros((2, self.count, 2), np.int64)
        self.steps = np.zeros(self.count, np.int64)

    def reset(self, seeds):
        self.seeds.reset(seeds)
        return self.restart(np.arange(self.count))

    def restart(self, rows):
        for row in rows:
            client, seed = self.seeds.next(row)
            self.goal[row] = self.world.goals[client]
            self.at[row] = np.random.default_rng(seed).integers(self.world.size, size=2)
        self.steps[rows] = 0
        return (self.at[rows] / self.world.size).astype(np.float32)

    def step(self, actions, rows=None):
        rows = np.arange(self.count) if rows is None else rows
        self.at[rows] = np.clip(self.at[rows] + MOVES[actions], 0, self.world.size - 1)
        self.steps[rows] += 1
        there = (self.at[rows] == self.goal[rows]).all(1)
        seen = (self.at[rows] / self.world.size).astype(np.float32)
        cut = self.steps[rows] >= self.world.horizon
        return Step(seen, np.where(there, 1.0, -0.1), there, cut)

    def step_alone(self, action):
        seen, rewards, there, cut = self.step(np.array([action]))
        return seen[0], float(rewards[0]), bool(there[0]), bool(cut[0])


class ArrayGridworld(SimulatedWorld):
    """Walk to a cell that is every client's own, many walkers at once."""

    Settings = Settings

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        super().__init__("gridworld", clients, observation_size=2, action_size=4, horizon=20)
        self.size = settings.size
        self.goals = np.random.default_rng(seed).integers(settings.size, size=(clients, 2))

    def simulator(self, pools) -> Walkers:
        return Walkers(self, pools)
