"""FedQHD, measured: all runs of a scale, and the errors that need a trained Q*."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from fedrl.algorithms import METHODS
from fedrl.config.build import build_algorithm
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.registry import load
from fedrl.core.types import Job
from fedrl.runs.grid import finished
from reproductions.fedqhd import gap, theory, tuning
from reproductions.fedqhd.plan import Plan, grid_of, read_plan
from reproductions.fedqhd.results import Results
from reproductions.grid import Cell, Grid
from reproductions.records import Data
from reproductions.results import read_runs
from reproductions.runner import Need, Task, playable, record_values, tasks_of, train
from reproductions.study import Study


def cells(scale: str, folder: Path, model: str) -> Grid:
    load(METHODS["fedqhd"], "fedrl reproduce", "fedqhd")  # says what to install
    return grid_of(read_plan(scale))


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    """The runs of these parts, those of most worth first, and the errors that need a trained Q*."""
    plan, found = read_plan(study.scale), list[Task]()
    for part in parts:
        cells = [cell for cell in study.grid.cells[part] if part not in ("tuning", "table")]
        found += tasks_of_cells(study, cells)
        for one in measurements(plan, part, study.place.runs):
            trained = Need(one.reference.name, partial(finished, one.reference),
                           partial(train, one.reference, study.place.processes))  # fmt: skip
            key = (part, one.name, one.digest)
            work = partial(record_values, partial(gap.averaged, one), *key, study.place.store)
            found.append(Task(*key, work, needs=(trained,), worth=worth(plan, part, "errors")))
        if part == theory.PART:
            found += theory.tasks(
                plan.sizes.draws, study.place.store, worth(plan, part, "theorems")
            )
    for task in plan.tasks:
        for row in plan.learners():
            found += of_row(study, plan, parts, task, *row)
    return list({task.key: task for task in found}.values())


def tasks_of_cells(study: Study, cells: Iterable[Cell]) -> list[Task]:
    needs, plan = partial(first_call, study.place.runs), read_plan(study.scale)
    found = tasks_of(playable(cells, study.absent), study.grid, study.place, needs)
    return [replace(one, worth=worth(plan, one.part, one.name)) for one in found]


def of_row(
    study: Study, plan: Plan, parts: Sequence[str], task: str, method: str, encoders: str
) -> list[Task]:
    """What can be done now for a row: its tries, or once they are all there its cell of the table.

    Of the parts that are asked for. Where a row is not tuned and nobody tunes it now, the table has
    what was chosen for it.
    """
    about, store = plan.methods[method], study.place.store
    cell = plan.table_cell(task, method, encoders)
    source = about.like or method
    if plan.methods[source].space_of(encoders):
        at = tuning.progress(plan, store, task, source, encoders)
        if not at.done and "tuning" in parts:
            if about.like:
                return []
            rows = [m for m, one in plan.methods.items() if method in (m, one.like)]
            then = partial(of_rows, study, plan, parts, task, rows, encoders)
            return [replace(one, then=then) for one in tasks_of_cells(study, at.missing)]
        if at.done:
            cell = plan.with_settings(task, method, encoders, at.best.settings)
    return tasks_of_cells(study, [cell]) if "table" in parts else []


def of_rows(
    study: Study, plan: Plan, parts: Sequence[str], task: str, rows: Sequence[str], encoders: str
) -> list[Task]:
    return [one for row in rows for one in of_row(study, plan, parts, task, row, encoders)]


def worth(plan: Plan, part: str, name: str) -> float:
    """By the first pattern of the grid's order that fits; nothing if none does."""
    order = plan.tables["order"]
    fits = (at for at, one in enumerate(order) if fnmatchcase(f"{part}:{name}", one))
    return float(len(order) - next(fits, len(order)))


def first_call(folder: Path, config: Config) -> tuple[Need, ...]:
    """Kernels are compiled before the first run that is timed."""
    name = f"{config.algorithm.name} for {config.world.name}"
    done = folder / "compiled" / name.replace(" ", "_")
    return (Need(f"compile {name}", done.is_file, partial(call_once, config, done)),)


def call_once(config: Config, done: Path) -> None:
    brief = replace(config, algorithm=replace(config.algorithm, episodes=1))
    algorithm = build_algorithm(brief)
    state = algorithm.init(seeding.derive(config.seed, "init"))
    algorithm.local(Job(0, algorithm.broadcast(state, 1), None, 0))
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()


def measurements(plan: Plan, part: str, folder: Path) -> Iterator[gap.Measurement]:
    """The errors of a part: one for every draw, with the Oracles' Q* in turn."""
    if part not in ("dimension", "anchors"):
        return
    sizes = plan.sizes
    learner = plan.compiled(part, sizes.fixed, sizes.fixed).config(0, folder)
    ridges = tuple(dict.fromkeys((gap.USUAL, learner.algorithm.ridge, gap.RIDGELESS)))
    by_size = tuple((d, sizes.ratio * d) for d in sizes.dimensions)
    by_count = tuple((sizes.fixed, m) for m in sizes.anchors)
    for draw in range(sizes.draws):
        oracle = plan.reference().config(sizes.seeds[draw % len(sizes.seeds)], folder)
        for source in gap.SOURCES[part]:
            yield gap.Measurement(
                part, draw, source, by_size if part == "dimension" else by_count, ridges,
                sizes.fit_states, sizes.held_out, learner, oracle,
            )  # fmt: skip


def collect(study: Study) -> Results:
    """All records of a scale, with those of Table 1 at the paper's sizes beside the small one."""
    plan, store = read_plan(study.scale), study.place.store
    kept, seconds = {}, {}
    for part in ("dimension", "anchors"):
        keys = [(part, m.name, m.digest) for m in measurements(plan, part, study.place.runs)]
        records = [found for key in keys if (found := store.read(*key))]
        kept[part] = [one["values"] for one in records]
        seconds[part] = float(np.mean([one["seconds"] for one in records] or [0.0]))
    tried = {key: record["values"] for key, record in earlier_tries(study).items()}
    tuned = {
        (task, f"{method}-{encoders}"): tuning.progress(plan, store, task, method, encoders)
        for task in plan.tasks
        for method, encoders in plan.tuned()
    }
    full = read_plan("full")
    beside = read_runs(store, full.table()) if study.scale == "small" else {}
    theorems = [
        record for one in theory.draws(plan.sizes.draws) if (record := store.read(*one.key))
    ]
    return Results(
        plan, study.runs(), kept, beside, full, tried, tuned, theorems, error_seconds=seconds
    )


def earlier_tries(study: Study) -> dict[tuple[str, str], Data]:
    """By task and learner, the records of all tries that were made before there was a rule."""
    found = {}
    plan, store = read_plan(study.scale), study.place.store
    for task in plan.tasks if study.scale != "smoke" else ():
        for method, encoders in plan.tuned():
            name = f"{task}-{method}-{encoders}-tries"
            for path in sorted((store.folder / "tuning").glob(f"{name}-*.json")):
                digest = path.stem.removeprefix(f"{name}-")
                if record := store.read("tuning", name, digest):
                    found[task, f"{method}-{encoders}"] = record
    return found
