"""The cells of a part of the grid, whether they have a record or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reproductions.grid import Cell, Grid
from reproductions.records import RETURN, Data
from reproductions.results import Measured, Trained, curve
from reproductions.statements import records_of
from reproductions.verdicts import BySeed, Samples, paired

WEIGHT, ERROR = "train/weight_mean", "eval/direction_error"
METHODS = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
TASKS = {"cartpole": "CartPole", "halfcheetah": "HalfCheetah", "walker2d": "Walker2d"}
TITLES = {"pavg": "PAvg", "scaffold": "SCAFFOLD", "fednova": "FedNova", "qavg": "QAvg",
          "fedpg-br": "FedPG-BR", "fedprox": "FedProx", "fedsvrpg-m": "FedSVRPG-M",
          "fedhapg-m": "FedHAPG-M"}  # fmt: skip


def shown(learner: str) -> str:
    name, _, own = learner.partition(" ")
    return f"{TITLES[name]} {own.replace('beta=', 'β=').replace('mu=', 'μ=')}".strip()


@dataclass(frozen=True)
class Separate:
    """A cell whose seeds are runs of their own, of those that went to their end."""

    trained: Trained

    @property
    def cell(self) -> Cell:
        return self.trained.cell

    @cached_property
    def done(self) -> Trained:
        runs = self.trained.runs.items()
        whole = {s: run for s, run in runs if max(run.rounds) >= self.cell.rounds}
        return Trained(self.cell, whole)

    def finals(self) -> BySeed:
        """Of the last evaluations, two at most."""
        return self.done.value(RETURN)

    def areas(self) -> BySeed:
        return {
            seed: float(np.mean([m[RETURN] for r, m in run.rounds.items() if r and RETURN in m]))
            for seed, run in self.done.runs.items()
        }

    def summary(self, metric: str, of: str, over: str = "mean") -> float:
        """`of` the last or the mean of points; their mean or median of seeds."""
        found = []
        for run in self.done.runs.values():
            points = [m[metric] for r, m in run.rounds.items() if r and metric in m]
            if points:
                found.append(points[-1] if of == "last" else float(np.mean(points)))
        if not found:
            return np.nan
        return float(np.median(found) if over == "median" else np.mean(found))

    def band(self, metric: str = RETURN) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        from fedrl.report import plots

        at, lines = curve([self.done], metric, self.cell.rounds)
        return at, *plots.interval(lines)

    @property
    def records(self) -> list[Data]:
        return records_of([self.done])

    @property
    def seconds(self) -> float:
        return float(sum(float(one["seconds"] or 0.0) for one in self.records))


@dataclass(frozen=True)
class Together:
    """A cell whose seeds were computed at once."""

    measured: Measured

    @property
    def cell(self) -> Cell:
        return self.measured.cell

    def finals(self) -> BySeed:
        return dict(zip(self.cell.seeds, map(float, self.measured.final()), strict=True))

    def areas(self) -> BySeed:
        return dict(zip(self.cell.seeds, map(float, self.measured.area()), strict=True))

    def kept(self, metric: str) -> BySeed:
        """By seed, the mean over all points of a metric that the cell compares."""
        values = self.measured.record["by_seed"][metric]
        return dict(zip(self.cell.seeds, map(float, values), strict=True))

    def summary(self, metric: str, of: str, over: str = "mean") -> float:
        return self.measured.summary(metric, of, over)

    def band(self, metric: str = RETURN) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.measured.band(metric)

    @property
    def records(self) -> list[Data]:
        return [self.measured.record]

    @property
    def seconds(self) -> float:
        return float(self.measured.record["seconds"])


Found = Separate | Together


class Part:
    """The cells of a part, with a record or without."""

    def __init__(
        self,
        grid: Grid,
        seeds: Mapping[str, Mapping[str, Measured]],
        runs: Mapping[str, Mapping[str, Trained]],
        name: str,
    ) -> None:
        self.name = name
        self.cells = {cell.name: cell for cell in grid.cells[name]}
        self.found: dict[str, Found] = {}
        for one, cell in self.cells.items():
            if cell.together and one in seeds[name]:
                self.found[one] = Together(seeds[name][one])
            elif not cell.together and Separate(runs[name][one]).finals():
                self.found[one] = Separate(runs[name][one])
        self.first = next(iter(self.cells.values()))

    def axis(self, name: str, start: str = "") -> list[str]:
        """The labels along an axis, of the cells whose names start so."""
        cells = (c for n, c in self.cells.items() if n.startswith(start) and name in c.labels)
        return list(dict.fromkeys(cell.labels[name] for cell in cells))

    def get(self, name: str) -> Found | None:
        return self.found.get(name)

    def final(self, name: str) -> Samples:
        one = self.found.get(name)
        return None if one is None else np.array(list(one.finals().values()))

    def area(self, name: str) -> Samples:
        one = self.found.get(name)
        return None if one is None else np.array(list(one.areas().values()))

    def pair(self, name: str, base: str, over: str = "final") -> tuple[Samples, Samples]:
        """Both, over the seeds that both have, at the end or over the run."""
        found = [self.found.get(one) for one in (name, base)]
        a, b = ({} if one is None else one.finals() if over == "final" else one.areas()
                for one in found)  # fmt: skip
        return paired(a, b)

    def summary(self, name: str, metric: str, of: str, over: str, form: str) -> str | None:
        one = self.found.get(name)
        return None if one is None else format(one.summary(metric, of, over), form)

    def records(self, names: Sequence[str] | None = None) -> list[Data]:
        chosen = self.found if names is None else [n for n in names if n in self.found]
        return [record for name in chosen for record in self.found[name].records]

    @property
    def whole(self) -> bool:
        return len(self.found) == len(self.cells)
