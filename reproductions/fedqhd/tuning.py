"""How the settings of a row are chosen: by a rule, from records, with seeds that no table reports.

    screen    every configuration of the row's space, one seed, half of the rounds
    finals    the best `finalists` of them, all tuning seeds, all rounds
    widen     while the best mean lies at the end of an axis, one more value beyond that end, in the
              same ratio as the last two, all seeds; at most `widenings` times

The grid's `[tuning]` has the numbers, `[space]` the configurations: as many for every row of a
task. An axis is a setting with several numbers that were tried with the same practice. What is next
follows from the records alone, so that work may be stopped at any moment, on any machine.

    python -m reproductions.fedqhd.tuning docs/results/fedqhd/records      # the grid's [chosen]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrl.core.types import Json, Tables
from reproductions.fedqhd.plan import PRACTICE, Plan, read_plan
from reproductions.fedqhd.results import RETURN
from reproductions.grid import Cell
from reproductions.records import Store
from reproductions.results import read_runs

DIGITS = 3
"""Significant ones of a value beyond an end."""


class Trial(NamedTuple):
    """Settings that were tried, and what they returned: the mean over seeds."""

    settings: Tables
    seeds: int
    value: float


@dataclass(frozen=True)
class Progress:
    """How far a row is: what was tried, what is to be tried next, and once it is done the best."""

    screened: Sequence[Trial]
    full: Sequence[Trial] = ()
    missing: Sequence[Cell] = ()
    widened: int = 0
    """Values that were tried beyond the ends of axes."""
    ends: Sequence[str] = ()
    """Axes at whose ends the best lies even so."""

    @property
    def done(self) -> bool:
        return bool(self.full) and not self.missing

    @property
    def best(self) -> Trial:
        return max(self.full, key=lambda one: one.value)  # the first of equals


def progress(plan: Plan, store: Store, task: str, method: str, encoders: str) -> Progress:
    """The row's rule, followed as far as there are records."""
    rule, row = plan.tables["tuning"], (task, method, encoders)
    space = plan.tries(task, method, encoders)

    def read(settings: Sequence[Tables], screening: bool) -> tuple[list[Trial], list[Cell]]:
        cells = [plan.trial(*row, one, screening) for one in settings]
        found, missing = [], []
        for one, cell in zip(settings, cells, strict=True):
            ends = read_runs(store, [cell])[cell.name].last(RETURN)
            if len(ends) < len(cell.seeds):
                missing.append(cell)
            else:
                found.append(Trial(one, len(ends), float(np.mean(list(ends.values())))))
        return found, missing

    screened, missing = read(space, screening=True)
    if missing:
        return Progress(screened, missing=missing)
    order = sorted(range(len(space)), key=lambda at: -screened[at].value)
    finals = [space[at] for at in sorted(order[: rule["finalists"]])]
    full, missing = read(finals, screening=False)
    tried = list(space)
    for _ in range(rule["widenings"]):
        if missing:
            break
        beyond = [new for _, new in outside(Progress((), full).best.settings, tried)]
        more, missing = read(beyond, screening=False)
        if not beyond:
            break
        tried, full = tried + beyond, full + more
    ends = [] if missing else [key for key, _ in outside(Progress((), full).best.settings, tried)]
    return Progress(screened, full, missing, len(tried) - len(space), ends)


def outside(best: Tables, tried: Sequence[Tables]) -> Iterator[tuple[str, Json]]:
    """By axis at whose end the best lies, the same settings with one more value beyond it."""
    alike = [one for one in tried if one.get(PRACTICE) == best.get(PRACTICE)]
    for key, value in best.items():
        if not isinstance(value, int | float):
            continue
        values = sorted({one[key] for one in alike if key in one})
        if len(values) < 2 or values[0] < value < values[-1]:
            continue
        inner = values[-2] if value == values[-1] else values[1]
        further = value * value / inner
        new = max(round(further), 1) if isinstance(value, int) else float(f"{further:.{DIGITS}g}")
        if new not in values:
            yield key, {**best, key: new}


def settled(plan: Plan, store: Store) -> dict[str, dict[str, Progress]]:
    """By task and learner, the rows that are tuned."""
    found: dict[str, dict[str, Progress]] = {}
    for task in plan.tasks:
        for method, encoders in plan.tuned():
            if (one := progress(plan, store, task, method, encoders)).done:
                found.setdefault(task, {})[f"{method}-{encoders}"] = one
    return found


def as_toml(settings: Tables) -> str:
    said = (f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in settings.items())
    return "{" + ", ".join(said) + "}"


if __name__ == "__main__":
    for task, by in settled(read_plan("small"), Store(Path(sys.argv[1]))).items():
        print(f"[chosen.{task}]")
        for name, one in by.items():
            print(f"{name} = {as_toml(one.best.settings)}  # {one.best.value:.1f}")
