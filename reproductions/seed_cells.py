"""Cells of a reproduction: one setting, many seeds, one file that lasts.

A cell is computed once and kept under its settings' hash, so a reproduction that was stopped goes
on where it was, and a cell whose settings changed is computed anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.algorithms import METHODS
from fedrl.core.atomic_files import write_atomically
from fedrl.core.registry import load, look_up, missing_extra
from fedrl.core.threads import pinned_children
from fedrl.envs import WORLDS
from fedrl.runs import provenance


@dataclass(frozen=True)
class Cell:
    """One setting of a table or a curve of a figure, over `seeds` seeds from `first` on."""

    part: str
    name: str
    algorithm: dict[str, Any]
    world: dict[str, Any]
    clients: int
    rounds: int
    seeds: int
    first: int = 0
    eval_every: int = 1
    chunk: int = 0
    """Seeds computed at once; 0 is all of them."""

    @property
    def digest(self) -> str:
        data = {k: v for k, v in dataclasses.asdict(self).items() if k not in ("part", "chunk")}
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Measured:
    """A cell's numbers: `curves[metric]` is [seeds, points], `at[metric]` the points' rounds."""

    cell: Cell
    curves: dict[str, np.ndarray]
    at: dict[str, np.ndarray]
    seconds: float
    meta: dict[str, Any] = field(default_factory=dict)

    def final(self, metric: str = "eval/return") -> np.ndarray:
        return self.curves[metric][:, -1]

    def area(self, metric: str = "eval/return") -> np.ndarray:
        """Mean over the evaluated rounds, round 0 aside: how good it was on the way."""
        return self.curves[metric][:, 1:].mean(1)

    def overall(self, metric: str) -> np.ndarray:
        """Mean over all rounds after round 0 in which the metric was measured."""
        return self.curves[metric][:, self.at[metric] > 0].mean(1)


def compute(cell: Cell) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Run the cell's seeds, a chunk at a time."""
    from fedrl.algorithms.momentum.batched_seeds import run_seeds

    started = time.perf_counter()
    worlds = load(look_up(WORLDS, "world.name", cell.world["name"]), "world", cell.world["name"])
    name = cell.algorithm["name"]
    entry = look_up(METHODS, "algorithm.name", name)
    settings = load(entry, "algorithm", name).Settings(**(dict(entry.defaults) | cell.algorithm))
    world_settings = worlds.Settings(**cell.world)
    seeds = range(cell.first, cell.first + cell.seeds)
    size = cell.chunk or cell.seeds
    chunks = [list(seeds[i : i + size]) for i in range(0, cell.seeds, size)]
    curves: dict[str, list[np.ndarray]] = {}
    at: dict[str, list[int]] = {}
    for chunk in chunks:
        points: dict[str, list[np.ndarray]] = {}
        at = {}
        make = partial(worlds.World, world_settings, cell.clients)
        for number, metrics in run_seeds(settings, make, chunk, cell.rounds, cell.eval_every):
            for metric, values in metrics.items():
                points.setdefault(metric, []).append(np.asarray(values, np.float64))
                at.setdefault(metric, []).append(number)
        for metric, rows in points.items():
            curves.setdefault(metric, []).append(np.stack(rows, 1))
    joined = {metric: np.concatenate(parts) for metric, parts in curves.items()}
    rounds = {metric: np.array(numbers) for metric, numbers in at.items()}
    return joined, rounds, time.perf_counter() - started


def path_of(folder: Path, cell: Cell) -> Path:
    return folder / cell.part / f"{cell.name}.{cell.digest}.npz"


def save(folder: Path, cell: Cell, result: Any) -> None:
    curves, at, seconds = result
    meta = provenance.collect() | {"cell": dataclasses.asdict(cell), "seconds": seconds}
    arrays = {f"curve:{k}": v for k, v in curves.items()} | {f"at:{k}": v for k, v in at.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, meta=np.array(json.dumps(meta)), **arrays)
    path = path_of(folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


def read(folder: Path, cell: Cell) -> Measured | None:
    path = path_of(folder, cell)
    if not path.is_file():
        return None
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
        curves = {k[6:]: file[k] for k in file.files if k.startswith("curve:")}
        at = {k[3:]: file[k] for k in file.files if k.startswith("at:")}
    return Measured(cell, curves, at, meta["seconds"], meta)


def measure(
    folder: Path, cells: Sequence[Cell], say: Callable[[str], None], processes: int
) -> dict[str, Measured]:
    """Every cell's numbers, by name: those on disk, and the rest computed now.

    With no processes nothing is computed: what is there is what there is.
    """
    missing = [cell for cell in cells if read(folder, cell) is None] if processes else []
    done = len(cells) - len(missing)
    if missing:
        say(f"{missing[0].part}: {done} of {len(cells)} cells are there")
    started = time.monotonic()
    for number, (cell, result) in enumerate(_results(missing, processes), 1):
        save(folder, cell, result)
        rest = (time.monotonic() - started) / number * (len(missing) - number)
        say(f"{cell.part}: {cell.name} in {result[2]:.1f} s, about {rest:.0f} s left in this part")
    measured = {cell.name: read(folder, cell) for cell in cells}
    return {name: one for name, one in measured.items() if one is not None}


def _results(cells: Sequence[Cell], processes: int) -> Iterable[tuple[Cell, Any]]:
    """One after the other, or several processes at once for worlds that compute on one thread."""
    try:
        if processes <= 1 or len(cells) <= 1:
            for cell in cells:
                yield cell, compute(cell)
            return
        context = multiprocessing.get_context("spawn")
        with pinned_children():
            pool = ProcessPoolExecutor(min(processes, len(cells)), mp_context=context)
            futures = {pool.submit(compute, cell): cell for cell in cells}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)
    except ModuleNotFoundError as error:
        extra = WORLDS[cells[0].world["name"]].extra
        raise missing_extra(error, f"the part {cells[0].part}", extra) from error
