"""What FedRLHF's `grid.toml` cannot say alone: files of answers, warm starts, the bound.

Answers of people are files that differ from seed to seed. What runs on reviews start from, where no
model is named, is one that has read public reviews, made once and kept under a hash of how it is
made. Where MovieLens is neither here nor recorded, generated ratings stand in.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrl.algorithms import METHODS
from fedrl.config.build import build_algorithm
from fedrl.config.loading import as_dict, resolve
from fedrl.config.schema import Config
from fedrl.core.registry import load
from fedrl.core.types import UserError
from fedrl.datasets.fetch import root
from fedrl.runs.grid import short_hash
from fedrl.runs.read import flatten
from fedrl.runs.warmstart_reviews import Settings, warmstart
from reproductions.fedrlhf import answers
from reproductions.fedrlhf.answers import Log
from reproductions.grid import Cell, Grid, changed, read_grid
from reproductions.records import Data, rounded
from reproductions.runner import Need, Needs, Task, record_values, run_name, tasks_of
from reproductions.study import Study

RATINGS = ("movielens", "tradeoff", "feedback", "bound")
PUBLIC = ("source", "shortest", "public", "family")
"""What of a world's settings decides which reviews are public."""


def cells(scale: str, folder: Path, model: str) -> Grid:
    """The grid; `folder` is where answers and warm starts lie, `model` the full scale's."""
    if model and scale != "full" and model != os.environ.get("FEDRL_MODEL"):
        raise UserError(f"--model is for the full scale: the scale {scale} makes its own model")
    return grid_of(scale, folder, model)


def grid_of(scale: str, folder: Path, model: str = "", genuine: bool = True) -> Grid:
    """Not `genuine`: of generated ratings."""
    grid = read_grid(Path(__file__).parent / "grid.toml", scale)
    several = dict(grid.cells)
    if not genuine:
        several |= {part: [with_settings(cell, {"world.source": "generated"})
                           for cell in several[part]] for part in RATINGS}  # fmt: skip
    several["feedback"] = [
        one for cell in several["feedback"] for one in answered(cell, grid, folder)
    ]
    start = model_of(grid, folder, model if scale == "full" else "")
    several["imdb"] = [with_settings(cell, {"algorithm.model": start}) for cell in several["imdb"]]
    return replace(grid, cells=several)


def with_settings(cell: Cell, settings: Mapping[str, Any]) -> Cell:
    return replace(cell, recipe=changed(cell.recipe, settings))


# Ratings


def of_ratings(study: Study) -> Study:
    """With generated ratings where the genuine ones are neither here nor recorded."""
    if is_genuine(study.grid):
        try:
            root("movielens")
        except UserError:
            if not any(study.records()[part] for part in RATINGS):
                grid = grid_of(study.scale, study.place.runs, study.model, genuine=False)
                return replace(study, grid=grid)
    return study


def is_genuine(grid: Grid) -> bool:
    return bool(grid.cells["movielens"][0].recipe["world"]["source"] != "generated")


def answered(cell: Cell, grid: Grid, folder: Path) -> Iterator[Cell]:
    """One cell per seed, with its answers' files, where people are asked."""
    if "kind" not in cell.labels:
        yield cell
        return
    for seed in cell.seeds:
        one = replace(cell, name=f"{cell.name}-{seed}", seeds=(seed,))
        files = log_of(one, grid).files(folder)
        yield with_settings(one, {"algorithm.feedback_file": files})


def log_of(cell: Cell, grid: Grid) -> Log:
    """What a cell's clients are told."""
    clients, flipped = cell.recipe["federation"]["clients"], grid.tables["flipped"]
    return Log(cell.labels["kind"], cell.seeds[0], clients, flipped, cell.recipe["world"])


def measure_bound(cell: Cell, seed: int) -> Data:
    """The bound of Theorem 4.1 and what it bounds, by round.

    The theorem is about policy gradients with plain steps and a uniform mean, so these runs are not
    those of the tables (`algorithms/fedrlhf/ratings/bound.py` says what is exact and what is an
    estimate).
    """
    from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF
    from fedrl.algorithms.fedrlhf.ratings.bound import measure

    algorithm = build_algorithm(cell.resolved(seed))
    assert isinstance(algorithm, FedRLHF)
    found = measure(algorithm, cell.rounds, seed)
    rows = [row._asdict() | {"paper": row.paper, "repaired": row.repaired} for row in found.rows]
    return dict(rounded({"constants": found.constants._asdict(), "rows": rows}))


# Reviews


@dataclass(frozen=True)
class Reading:
    """A world of reviews, as in a recipe, and how its public ones are read."""

    world: Mapping[str, Any]
    settings: Settings

    def path(self, folder: Path) -> Path:
        """The model's folder; its hash is of what differs from the defaults."""
        usual = dataclasses.asdict(Settings())
        said = {k: v for k, v in dataclasses.asdict(self.settings).items() if v != usual[k]}
        world = {key: self.world[key] for key in PUBLIC if key in self.world}
        return folder / "models" / f"reviews.{short_hash([world, said])}"

    def need(self, folder: Path) -> Need:
        path = self.path(folder)
        return Need("warm start on public reviews", path.is_dir, partial(read_reviews, self, path))


def read_reviews(reading: Reading, path: Path) -> None:
    from fedrl.envs.imdb.world import World

    settings = resolve({"world": dict(reading.world)}).world
    warmstart(World(settings, 0, 0), reading.settings, path, Console(quiet=True))


def reading_of(grid: Grid) -> Reading:
    return Reading(grid.cells["imdb"][0].recipe["world"], Settings(**grid.tables["reading"]))


def model_of(grid: Grid, folder: Path, model: str) -> str:
    """What runs on reviews begin with: the model that is named, or one that has to be made."""
    return model or grid.tables["model"] or str(reading_of(grid).path(folder))


# Tasks


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    """Every record of these parts."""
    load(METHODS["fedrlhf"], "fedrl reproduce", "fedrlhf")  # says what to install
    asked, study = study, of_ratings(study)
    if study is not asked:
        print("MovieLens is not here: generated ratings stand in (`fedrl data movielens` gets it)",
              file=sys.stderr, flush=True)  # fmt: skip
    runs = [cell for part in parts if part != "bound" for cell in study.grid.cells[part]]
    found = tasks_of(runs, study.grid, study.place, needs_of(study))
    return found + (bound_tasks(study) if "bound" in parts else [])


def needs_of(study: Study) -> Needs:
    """By a run's settings, the files of answers or the model that it reads."""
    folder, grid = study.place.runs, study.grid
    logs = [log_of(cell, grid) for cell in grid.cells["feedback"] if "kind" in cell.labels]
    made = {log.files(folder): answers.need(log, folder) for log in logs}
    made[str(reading_of(grid).path(folder))] = reading_of(grid).need(folder)

    def needs(config: Config) -> tuple[Need, ...]:
        said = flatten(as_dict(config))
        named = (said.get(key) for key in ("algorithm.feedback_file", "algorithm.model"))
        return tuple(made[name] for name in named if name in made)

    return needs


def bound_tasks(study: Study) -> list[Task]:
    found = []
    for cell in study.grid.cells["bound"]:
        for seed in cell.seeds:
            key = ("bound", run_name(cell, seed), cell.digest(seed))
            measure = partial(measure_bound, cell, seed)
            found.append(Task(*key, partial(record_values, measure, *key, study.place.store)))
    return found
