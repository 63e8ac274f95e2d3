"""A paper's reproduction at one scale: compute what has no record, then write the page.

A paper is a folder: `grid.toml` (what is measured), `paper.toml` (the paper's own numbers),
`published.toml` (what its page said before records were kept), `page.md.jinja` and a module
`analysis` with

    write(study, page, path)         the page, from records
    cells(scale, folder, model)      optional: the grid, where it takes more than the file
    tasks(study, parts)              optional: what is measured, where that is not only cells
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError
from reproductions.grid import Cell, Grid, read_grid
from reproductions.pages import Page
from reproductions.records import Data, Store
from reproductions.results import Measured, Trained, read_runs, read_seeds
from reproductions.runner import (
    Place,
    Say,
    playable,
    processes_for,
    run_missing,
    tasks_of,
    unplayable,
)

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Study:
    """What a paper's analysis works with."""

    paper: str
    scale: str
    grid: Grid
    place: Place
    absent: Mapping[str, str] = field(default_factory=dict)
    """Worlds that cannot be played here, and why."""
    model: str = ""
    """What the full scale's runs begin with, where that may be chosen."""

    @property
    def folder(self) -> Path:
        return FOLDER / self.paper

    def seeds(self) -> dict[str, dict[str, Measured]]:
        """By part and cell, what has a record of seeds computed together."""
        return {
            part: read_seeds(self.place.store, found) for part, found in self.grid.cells.items()
        }

    def runs(self) -> dict[str, dict[str, Trained]]:
        """By part and cell, the runs that have a record."""
        return {part: read_runs(self.place.store, found) for part, found in self.grid.cells.items()}

    def records(self) -> dict[str, list[Data]]:
        """By part, all records of the grid's cells."""
        found: dict[str, list[Data]] = {}
        for part in self.grid.cells:
            keys = [key for cell in self._own(part) for key in self._keys(cell)]
            read = (self.place.store.read(part, name, digest) for name, digest in keys)
            found[part] = [record for record in read if record is not None]
        return found

    def planned(self) -> dict[str, int]:
        """By part, how many records there are to be."""
        return {
            part: sum(1 if cell.together else len(cell.seeds) for cell in self._own(part))
            for part in self.grid.cells
        }

    def _own(self, part: str) -> list[Cell]:
        """Without the cells of other parts that it reads."""
        return [cell for cell in self.grid.cells[part] if cell.part == part]

    @staticmethod
    def _keys(cell: Cell) -> list[tuple[str, str]]:
        if cell.together:
            return [(cell.name, cell.digest(0))]
        return [(f"{cell.name}-seed{seed}", cell.digest(seed)) for seed in cell.seeds]


def analysis_of(paper: str) -> ModuleType:
    try:
        return importlib.import_module(f"reproductions.{paper}.analysis")
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"fedrl reproduce {paper}", "classic") from error


def prepare(
    paper: str, scale: str, out: Path, records: Path, processes: int = 1, model: str | None = None
) -> Study:
    """The study of a paper; `out` has its runs, `records` its records."""
    analysis = analysis_of(paper)
    model = model or os.environ.get("FEDRL_MODEL") or ""
    if hasattr(analysis, "cells"):
        grid = analysis.cells(scale, out, model)
    else:
        grid = read_grid(FOLDER / paper / "grid.toml", scale)
    return Study(paper, scale, grid, Place(out, Store(records), processes), model=model)


def wanted(grid: Grid, only: Sequence[str]) -> list[str]:
    """The parts that are asked for: all, or those named, by their names or by what follows `_`."""
    parts = [part for part in grid.cells if grid.cells[part]]
    on_request = grid.tables.get("on_request", ())
    known = dict.fromkeys([*parts, *(part.partition("_")[2] or part for part in parts)])
    if unknown := [one for one in only if one not in known]:
        raise UserError(f"--only {unknown[0]}: the parts are {', '.join(known)}")
    if not only:
        return [part for part in parts if part not in on_request]
    return [part for part in parts if part in only or part.partition("_")[2] in only]


def measure(study: Study, only: Sequence[str], say: Say, processes: int | None = None,
            minutes: float | None = None, cells: Sequence[str] = ()) -> Study:  # fmt: skip
    """Compute what is missing of the wanted parts, as far as the time goes; of these `cells` alone,
    if patterns of names are given."""
    parts = wanted(study.grid, only)
    found = [cell for part in parts for cell in study.grid.cells[part]]
    study = replace(study, absent=unplayable(found))
    if processes == 0:
        return study
    for world, why in study.absent.items():
        say(f"{world} is skipped: {why}")
    several = processes or processes_for(found, study.grid.tables.get("on_a_gpu"))
    study = replace(study, place=replace(study.place, processes=several))
    analysis = analysis_of(study.paper)
    if hasattr(analysis, "tasks"):
        tasks = analysis.tasks(study, parts)
    else:
        tasks = tasks_of(playable(found, study.absent), study.grid, study.place)
    run_missing(tasks, study.place, say, several, minutes, cells)
    return study


def write_page(study: Study, path: Path, published: bool = False) -> None:
    """`published`: what the page said before stands in for what has no record."""
    page = Page.of(study.folder, path, published)
    analysis_of(study.paper).write(study, page, path)
