"""A windy gridworld: from the lower left corner to the upper right one, against one's own wind.

Four actions move one field; with the client's probability the wind then pushes the walker one field
down. A step costs 1/(2·size), the goal ends the episode and pays 1. Observations are the two
coordinates, from −1 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrl.core import seeding
from fedrl.core.limits import at_least_one
from fedrl.envs.simulated import EnvironmentWorld

MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])


@dataclass(frozen=True)
class GridSettings:
    """A square of fields, and how strong the winds are."""

    # Fields along a side.
    size: int = 5
    # Client i's wind blows with the probability wind · x_i, x_i ~ U(0, 1).
    wind: float = 0.3
    # Steps after which an episode ends.
    horizon: int = 60

    def __post_init__(self) -> None:
        at_least_one(self, "world.", "size", "horizon")


class Grid:
    """One client's environment, as Gymnasium has them."""

    def __init__(self, size: int, wind: float) -> None:
        self.size, self.wind = size, wind

    def reset(self, *, seed: int):
        self.random, self.place = np.random.default_rng(seed), np.zeros(2, int)
        return self.seen(), {}

    def step(self, action: int):
        gust = (0, -1) if self.random.random() < self.wind else (0, 0)
        self.place = (self.place + MOVES[action] + gust).clip(0, self.size - 1)
        there = bool((self.place == self.size - 1).all())
        return self.seen(), float(there) - 0.5 / self.size, there, False, {}

    def seen(self) -> np.ndarray:
        return 2 * self.place / max(1, self.size - 1) - 1


class WindyGrid(EnvironmentWorld):
    """a windy gridworld; the winds differ by client"""

    Settings = GridSettings

    def __init__(self, settings: GridSettings, clients: int, seed: int) -> None:
        super().__init__("windy-grid", clients, 2, len(MOVES), settings.horizon)
        self.settings, self.seed = settings, seed

    def environment(self, client: int) -> Grid:
        strength = seeding.generator(self.seed, "wind", client=client).random()
        return Grid(self.settings.size, self.settings.wind * strength)
