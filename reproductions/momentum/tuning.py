"""Step sizes: what the theorems prescribe, and what tuning found.

    η     the best mean return over the run of the tuning seeds, with λ = ηK
    λ     with that η, the best of ηK and some multiples of it

A part that [tuned] of the grid names takes what was found for its row, from records; before all of
a row's tries have one, nothing of it is run or shown. Several rows may be tuned alike ([like]).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, partial

import numpy as np

from fedrl.core.types import Json
from fedrl.envs.control import random_mdp
from reproductions.grid import Cell, Grid, changed
from reproductions.momentum.parts import Part
from reproductions.momentum.theory import Constants, measured_constants
from reproductions.runner import Task, playable, tasks_of
from reproductions.study import Study

WEIGHT_VARIANCE = 0.05
"""W that the theorems' parameters are computed with; the page says what it was."""


@dataclass(frozen=True)
class Try:
    """Settings that were tried for a row, and how they did; NaN if they diverged."""

    cell: Cell
    score: float

    @property
    def steps(self) -> Json:
        chosen = self.cell.recipe["algorithm"]
        return {f"algorithm.{key}": chosen[key] for key in ("lr", "server_lr") if key in chosen}


def best(scores: Mapping[str, float]) -> str:
    """The step size with the highest mean return over the tuning runs; never of a diverged one."""
    return max(scores, key=lambda rate: np.nan_to_num(scores[rate], nan=-np.inf))


class Tuning:
    """What tuning found of a study's rows; every record is read once."""

    def __init__(self, study: Study) -> None:
        self.study, self.grid = study, study.grid
        self.after: Mapping[str, str] = study.grid.tables["tuned"]
        self._tries: dict[tuple[str, str], dict[str, Try] | None] = {}

    def row(self, cell: Cell) -> str:
        learner = cell.labels["learner"]
        return str(self.grid.tables.get("like", {}).get(learner, learner))

    def choice(self, part: str, learner: str) -> Try | None:
        """The best try of a row in a tuning part; None while one is missing."""
        tries = self.tries(part, learner)
        if not tries:
            return None
        return tries[best({name: one.score for name, one in tries.items()})]

    def tries(self, part: str, learner: str) -> dict[str, Try] | None:
        """Every try of a row by its cell, the best of the part before it among them."""
        if (part, learner) not in self._tries:
            self._tries[part, learner] = self._read(part, learner)
        return self._tries[part, learner]

    def ends(self, part: str, learner: str) -> list[str]:
        """Which of η and λ is best at the smallest or the largest that was tried."""
        found, tries, best = [], self.tries(part, learner), self.choice(part, learner)
        label, told = "rate", "η"
        if before := self.after.get(part):
            found, label, told = self.ends(before, learner), "factor", "λ"
        if not tries or best is None:
            return found
        tried = [float(one.cell.labels.get(label, 1)) for one in tries.values()]  # ηK is ηK times 1
        own = any(label in one.cell.labels for one in tries.values())
        if own and float(best.cell.labels.get(label, 1)) in (min(tried), max(tried)):
            found.append(told)
        return found

    def _read(self, part: str, learner: str) -> dict[str, Try] | None:
        found: dict[str, Try] = {}
        if before := self.after.get(part):
            winner = self.choice(before, learner)
            if winner is None:
                return None
            found[winner.cell.name] = winner
        own = [one for one in self.grid.cells[part] if one.labels["learner"] == learner]
        cells = [one for cell in own if (one := self.cell(cell)) is not None]
        some = replace(self.grid, cells={part: cells})
        if not cells:
            return found
        study = replace(self.study, grid=some)
        read = Part(some, study.seeds(), study.runs(), part)
        for cell in cells:
            areas = () if (at := read.get(cell.name)) is None else at.areas().values()
            if len(areas) < len(cell.seeds):
                return None
            found[cell.name] = Try(cell, float(np.mean(list(areas))))
        return found

    def cell(self, cell: Cell) -> Cell | None:
        """With what was found for its row; None while tries are missing."""
        if cell.part == "theorems":
            return prescribed(cell)
        if cell.part not in self.after:
            return cell
        winner = self.choice(self.after[cell.part], self.row(cell))
        if winner is None:
            return None
        steps = dict(winner.steps)
        if "factor" in cell.labels:
            length = steps["algorithm.lr"] * winner.cell.recipe["algorithm"]["local_steps"]
            steps["algorithm.server_lr"] = float(f"{float(cell.labels['factor']) * length:.4g}")
        return replace(cell, recipe=changed(cell.recipe, steps))

    def settled(self) -> Study:
        """The study with the steps that its tuning found, and those that the theorems prescribe."""
        cells = {
            part: [self.cell(one) or one for one in several]
            for part, several in self.grid.cells.items()
        }
        return replace(self.study, grid=replace(self.grid, cells=cells))


# The theorems


def prescribed(cell: Cell) -> Cell:
    """β, η, λ and B of Theorem 6.4, or 6.5 for FedHAPG-M, to three digits."""
    known = constants(cell)
    clients, steps = cell.recipe["federation"]["clients"], cell.recipe["algorithm"]["local_steps"]
    found = asdict(known.prescribed(clients, steps, cell.rounds, cell.labels["method"]))
    told = {f"algorithm.{k}": v if isinstance(v, int) else float(f"{v:.3g}")
            for k, v in found.items()}  # fmt: skip
    return replace(cell, recipe=changed(cell.recipe, told))


def constants(cell: Cell) -> Constants:
    return constants_of(cell.resolved().world, len(cell.seeds))


@cache
def constants_of(world: random_mdp.Settings, seeds: int, clients: int = 8) -> Constants:
    return measured_constants(world, clients, seeds, WEIGHT_VARIANCE)


# Tasks


def worth(grid: Grid, part: str, name: str) -> float:
    """By the first pattern of the grid's order that fits; nothing if none does."""
    order: Sequence[str] = grid.tables["order"]
    fits = (at for at, one in enumerate(order) if fnmatchcase(f"{part}:{name}", one))
    return float(len(order) - next(fits, len(order)))


def tasks(study: Study, parts: Sequence[str], learner: str = "") -> list[Task]:
    """What can be run now, of one row if it is named; more follows as soon as a row is tuned."""
    tuning = Tuning(study)
    cells = [one for part in parts for one in study.grid.cells[part]]
    if learner:
        cells = [one for one in cells if one.part in tuning.after and tuning.row(one) == learner]
    ready = [one for cell in cells if (one := tuning.cell(cell)) is not None]
    rows: dict[str, dict[str, str]] = {one.part: {} for one in ready}
    for one in ready:
        rows[one.part][one.name] = one.labels.get("learner", "")
    found = tasks_of(playable(ready, study.absent), study.grid, study.place)
    followed = {*tuning.after.values()}
    return [
        replace(
            one,
            worth=worth(study.grid, one.part, one.name),
            then=partial(tasks, study, parts, row_of(one, rows)) if one.part in followed else None,
        )
        for one in found
    ]


def row_of(task: Task, rows: Mapping[str, Mapping[str, str]]) -> str:
    """The learner of a task's cell; a run's name has its seed at the end."""
    return rows[task.part].get(task.name) or rows[task.part][task.name.rpartition("-seed")[0]]
