"""The cells of a part of the grid, whether they have a record or not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reproductions.grid import Grid
from reproductions.results import Measured

WEIGHT, ERROR = "train/weight_mean", "eval/direction_error"
METHODS = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
TASKS = {"cartpole": "CartPole", "halfcheetah": "HalfCheetah", "walker2d": "Walker2d"}
FLAT = 0.1
"""A move of J that is none."""


class Part:
    """The cells of a part, with a record or without."""

    def __init__(self, grid: Grid, found: Mapping[str, Mapping[str, Measured]], name: str) -> None:
        self.cells = {cell.name: cell for cell in grid.cells[name]}
        self.found = found[name]
        self.first = next(iter(self.cells.values()))

    def axis(self, name: str, start: str = "") -> list[str]:
        """The labels along an axis, of the cells whose names start so."""
        cells = (c for n, c in self.cells.items() if n.startswith(start) and name in c.labels)
        return list(dict.fromkeys(cell.labels[name] for cell in cells))

    def get(self, name: str) -> Measured | None:
        return self.found.get(name)

    def final(self, name: str) -> np.ndarray | None:
        one = self.found.get(name)
        return None if one is None else one.final()

    def area(self, name: str) -> np.ndarray | None:
        one = self.found.get(name)
        return None if one is None else one.area()

    def summary(self, name: str, metric: str, of: str, over: str, form: str) -> str | None:
        one = self.found.get(name)
        return None if one is None else format(one.summary(metric, of, over), form)

    @property
    def whole(self) -> bool:
        return len(self.found) == len(self.cells)
