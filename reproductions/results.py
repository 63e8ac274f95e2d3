"""What there is of a cell, read from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrl.config.seeds import seeds_in_words
from fedrl.core.types import Tables
from fedrl.runs.read import Run
from reproductions.grid import Cell
from reproductions.records import RETURN, Data, Store, as_run
from reproductions.runner import run_name

BySeed = Mapping[int, float]


def late_rounds(run: Run, metric: str, rounds: int, cell: Cell) -> list[int]:
    """The evaluations behind a number of a table."""
    at = [r for r, metrics in run.rounds.items() if metric in metrics and 0 < r <= rounds]
    return [r for r in at[-cell.most :] if r >= (1 - cell.share) * at[-1]]


def spent(meta: Tables) -> Tables:
    """Seconds of the parts of a run's rounds: the processor's, or the clock's in older records."""
    found: Tables = meta.get("cpu_phases") or meta["phases"]
    return found


@dataclass(frozen=True)
class Trained:
    """A cell's runs by seed. They count as far as they went."""

    cell: Cell
    runs: Mapping[int, Run]

    def value(self, metric: str, rounds: int | None = None) -> dict[int, float]:
        """By seed, the mean of the last evaluations up to this round, for runs that reached it."""
        rounds = self.cell.rounds if rounds is None else rounds
        found = {}
        for seed, run in self.runs.items():
            late = late_rounds(run, metric, rounds, self.cell)
            if late and max(run.rounds) >= rounds:
                found[seed] = float(np.mean([run.rounds[r][metric] for r in late]))
        return found

    def last(self, metric: str) -> dict[int, float]:
        """By seed, the metric in the last round, for the runs that reached it."""
        ends = {seed: run.rounds.get(self.cell.rounds, {}) for seed, run in self.runs.items()}
        return {seed: end[metric] for seed, end in ends.items() if metric in end}

    def late(self, metric: str, rounds: int) -> dict[int, float]:
        """By seed, the mean over the last so many rounds that have the metric."""
        done = self.last(metric)
        return {
            seed: float(np.mean([m[metric] for m in run.rounds.values() if metric in m][-rounds:]))
            for seed, run in self.runs.items()
            if seed in done
        }

    def first(self, metric: str) -> dict[int, float]:
        """By seed, before any training."""
        return {s: run.rounds[0][metric] for s, run in self.runs.items() if metric in run.rounds[0]}

    def episodes(self, rounds: np.ndarray) -> np.ndarray:
        """Episodes played up to each of these rounds, by the first run."""
        first = next(iter(self.runs.values()), None)
        if first is None:
            return np.empty(0)
        return np.array([first.rounds[int(r)].get("env/episodes", 0.0) for r in rounds])

    def minutes(self) -> dict[int, float]:
        """By seed, what clients and server took to train, without evaluations and checkpoints.

        Of the processor, which a busy machine does not change; of the clock in records without it.
        """
        return {
            seed: sum(spent(run.meta).get(p, 0.0) for p in ("broadcast", "clients")) / 60
            for seed, run in self.runs.items()
            if max(run.rounds) >= self.cell.rounds
        }

    @property
    def whole(self) -> bool:
        """Whether every seed went to its end."""
        return not self.missing()

    def missing(self) -> str:
        """What is not there, in words; nothing if all is."""
        begun: list[str] = []
        nothing: list[int] = []
        for seed in self.cell.seeds:
            last = max(self.runs[seed].rounds) if seed in self.runs else -1
            if last < 0:
                nothing.append(seed)
            elif last < self.cell.rounds:
                begun.append(f"seed {seed} is at round {last} of {self.cell.rounds}")
        return "; ".join(begun + ([not_begun(nothing)] if nothing else []))


def not_begun(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {seeds_in_words(seeds)} not begun"


@dataclass(frozen=True)
class Measured:
    """A cell whose seeds were computed together."""

    cell: Cell
    record: Data

    def final(self) -> np.ndarray:
        """The return at the end, by seed."""
        return np.array(self.record["by_seed"]["last"], float)

    def area(self) -> np.ndarray:
        """The return's mean over the evaluated rounds, round 0 aside: how good it was meanwhile."""
        return np.array(self.record["by_seed"]["mean"], float)

    def summary(self, metric: str, of: str, over: str = "mean") -> float:
        """`of` the first, the last, the mean or all points; their mean, median or max of seeds."""
        found = self.record["summary"].get(metric, {}).get(of, {}).get(over)
        return np.nan if found is None else float(found)

    def band(self, metric: str = RETURN) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The points' rounds, and mean and half width over seeds."""
        found = self.record["bands"][metric]
        mean, half = (np.array(found[key], float) for key in ("mean", "half"))
        return np.array(found["at"]), mean, half


Runs = Mapping[str, Trained]
Seeds = Mapping[str, Measured]


def read_runs(store: Store, cells: Iterable[Cell]) -> dict[str, Trained]:
    """Every cell by name, with the runs that have a record."""
    found = {}
    for cell in cells:
        runs = {}
        for seed in () if cell.together else cell.seeds:
            key = (cell.part, run_name(cell, seed), cell.digest(seed))
            if record := store.read(*key):
                runs[seed] = as_run(cell, seed, record, store.path(*key))
        found[cell.name] = Trained(cell, runs)
    return found


def read_seeds(store: Store, cells: Iterable[Cell]) -> dict[str, Measured]:
    """The cells that have a record, by name."""
    found = {}
    for cell in cells:
        if cell.together and (record := store.read(cell.part, cell.name, cell.digest(0))):
            found[cell.name] = Measured(cell, record)
    return found


def curve(cells: Sequence[Trained], metric: str, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds [points] and the metric [seeds, points] up to a round, averaged over these cells.

    Only seeds that every cell has begun, and rounds that all of their runs have evaluated.
    """
    seeds = sorted(set.intersection(*(set(cell.runs) for cell in cells))) if cells else []
    logs = [[cell.runs[seed].rounds for seed in seeds] for cell in cells]
    each = [
        {r for r, metrics in log.items() if metric in metrics and r <= rounds}
        for row in logs
        for log in row
    ]
    at = sorted(set.intersection(*each)) if each else []
    values = [[[log[r][metric] for r in at] for log in row] for row in logs]
    shape = (len(cells), len(seeds), len(at))
    return np.array(at, int), np.array(values, float).reshape(shape).mean(0)
