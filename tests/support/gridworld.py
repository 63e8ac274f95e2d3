"""A world of one's own, outside of fedrl: a grid in which each client's goal lies elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrl.envs.simulated import EnvironmentWorld

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


@dataclass(frozen=True)
class Settings:
    """How large the grid is."""

    # Cells along a side.
    size: int = 4


class Grid:
    def __init__(self, size: int, goal: np.ndarray) -> None:
        self.size, self.goal, self.at = size, goal, goal

    def reset(self, *, seed: int):
        self.at = np.random.default_rng(seed).integers(self.size, size=2)
        return self.at / self.size, {}

    def step(self, action: int):
        self.at = np.clip(self.at + MOVES[action], 0, self.size - 1)
        there = bool((self.at == self.goal).all())
        return self.at / self.size, 1.0 if there else -0.1, there, False, {}


class Gridworld(EnvironmentWorld):
    """Walk to a cell that is every client's own."""

    Settings = Settings

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        super().__init__("gridworld", clients, observation_size=2, action_size=4, horizon=20)
        self.size = settings.size
        self.goals = np.random.default_rng(seed).integers(settings.size, size=(clients, 2))

    def environment(self, client: int) -> Grid:
        return Grid(self.size, self.goals[client])
