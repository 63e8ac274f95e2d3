"""What FedRLHF's `grid.toml` cannot say alone: files of answers, warm starts, the bound.

Answers of people are files that differ from seed to seed. What runs on reviews start from, where no
model is named, is one that has read public reviews, made once and kept under a hash of how it is
made. Where MovieLens is neither here nor recorded, generated ratings stand in.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tomllib
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
from fedrl.report import plots
from fedrl.runs.grid import short_hash
from fedrl.runs.read import flatten
from fedrl.runs.warmstart_reviews import Settings, warmstart
from reproductions.fedrlhf import answers
from reproductions.fedrlhf.answers import Log
from reproductions.grid import Cell, Grid, changed, read_grid
from reproductions.records import Data, rounded
from reproductions.runner import Need, Needs, Task, record_values, run_name, tasks_of
from reproductions.study import Study

RULES = tomllib.loads((Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8"))
BANDIT = "bandit"
"""The record of what was enumerated."""
LINEAR = ("recommender", "few_answers", "everybody", "recommender_tuning")
"""Runs of the linear policy, of which clients' own numbers are not kept: there are 610."""
RATINGS = ("movielens", "tradeoff", "feedback", "bound", "baselines", *LINEAR)
MADE_UP = 200
"""Generated users, of whom a world has so many."""
REVIEWS = ("tuned", "imdb")
GPT2 = "gpt2"
"""The label of runs whose built-in model has this architecture."""
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
                           for cell in several[part]
                           if cell.recipe["federation"]["clients"] < MADE_UP]
                    for part in RATINGS}  # fmt: skip
    several["feedback"] = [
        one for cell in several["feedback"] for one in answered(cell, grid, folder)
    ]
    start = model_of(grid, folder, model if scale == "full" else "")
    other = str(reading_of(grid, GPT2).path(folder))
    for part in REVIEWS:
        several[part] = [
            with_settings(cell, {"algorithm.model": other if is_gpt2(cell) else start})
            for cell in several[part]
        ]
    return replace(grid, cells=several)


def is_gpt2(cell: Cell) -> bool:
    return cell.labels["learner"] == GPT2


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
    """The bound of Theorem 4.1 and what it bounds, by round, and the lemmas' draws of some rounds.

    The theorem is about policy gradients with plain steps and a uniform mean, so these runs are not
    those of the tables (`algorithms/fedrlhf/ratings/bound.py` says what is exact and what is an
    estimate).
    """
    from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF
    from fedrl.algorithms.fedrlhf.ratings.lemmas import measure

    algorithm = build_algorithm(cell.resolved(seed))
    assert isinstance(algorithm, FedRLHF)
    looked = [number for number in RULES["theory"]["rounds"] if number <= cell.rounds]
    found = measure(algorithm, cell.rounds, seed, looked, RULES["theory"]["draws"])
    rows = [row._asdict() | {"paper": row.paper, "repaired": row.repaired} for row in found.rows]
    looks = [
        {
            "round": look.round, "slope": look.slope,
            "distances": [plots.interval(one) for one in look.distances],
            "gain": plots.interval(look.gains),
        }
        for look in found.looks
    ]  # fmt: skip
    constants = found.constants._asdict()
    return dict(rounded({"constants": constants, "rows": rows, "looks": looks}))


def measure_bandit() -> Data:
    from reproductions.fedrlhf import bandit

    return dict(rounded(bandit.measure(RULES["theory"])))


def bandit_key() -> tuple[str, str, str]:
    """Of its record."""
    theory = RULES["theory"]
    return "bound", BANDIT, short_hash([BANDIT, theory["bandits"], *theory["gaps"]])


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
        kind = "" if self.settings.architecture == "llama" else f", {self.settings.architecture}"
        name = f"warm start on public reviews{kind}"
        return Need(name, path.is_dir, partial(read_reviews, self, path))


def read_reviews(reading: Reading, path: Path) -> None:
    from fedrl.envs.imdb.world import World

    settings = resolve({"world": dict(reading.world)}).world
    warmstart(World(settings, 0, 0), reading.settings, path, Console(quiet=True))


def reading_of(grid: Grid, architecture: str = "llama") -> Reading:
    how = {"architecture": architecture, **grid.tables["reading"]}
    return Reading(grid.cells["imdb"][0].recipe["world"], Settings(**how))


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
    grid, needs = study.grid, needs_of(study)
    brief = replace(grid, tables={**grid.tables, "keep_clients": ()})
    found = [
        task
        for part in parts
        if part not in ("bound", "baselines")
        for task in tasks_of(
            grid.cells[part], brief if part in LINEAR else grid, study.place, needs
        )
    ]
    found += bound_tasks(study) if "bound" in parts else []
    return found + (baseline_tasks(study) if "baselines" in parts else [])


def needs_of(study: Study) -> Needs:
    """By a run's settings, the files of answers or the model that it reads."""
    folder, grid = study.place.runs, study.grid
    logs = [log_of(cell, grid) for cell in grid.cells["feedback"] if "kind" in cell.labels]
    made = {log.files(folder): answers.need(log, folder) for log in logs}
    for reading in (reading_of(grid), reading_of(grid, GPT2)):
        made[str(reading.path(folder))] = reading.need(folder)

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
    key = bandit_key()
    found.append(Task(*key, partial(record_values, measure_bandit, *key, study.place.store)))
    return found


def baseline_tasks(study: Study) -> list[Task]:
    """Models that are told the stars, with the settings that were chosen for so many users."""
    from reproductions.fedrlhf import recommender

    found = []
    for cell in study.grid.cells["baselines"]:
        told = told_of(study.grid, cell)
        for seed in cell.seeds:
            key = baseline_key(study.grid, cell, seed)
            measure = partial(recommender.measure, cell, seed, told)
            found.append(Task(*key, partial(record_values, measure, *key, study.place.store)))
    return found


def told_of(grid: Grid, cell: Cell) -> Mapping[str, float]:
    settings: Mapping[str, float] = grid.tables["told"][cell.labels["clients"]]
    return settings


def baseline_key(grid: Grid, cell: Cell, seed: int) -> tuple[str, str, str]:
    """Of its record: its world and the models' settings."""
    marked = short_hash([cell.digest(seed), *sorted(told_of(grid, cell).items())])
    return "baselines", run_name(cell, seed), marked
