"""FedQHD, measured: all runs of a scale, and the errors that need a trained Q*."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedrl.algorithms import METHODS
from fedrl.config.build import build_algorithm
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.registry import load
from fedrl.core.types import Job
from fedrl.runs.grid import compute, finished
from reproductions.fedqhd import choices, gap
from reproductions.fedqhd.plan import Plan, grid_of, read_plan
from reproductions.fedqhd.results import Results
from reproductions.grid import Grid
from reproductions.records import Data
from reproductions.results import read_runs
from reproductions.runner import Need, Task, playable, record_values, tasks_of
from reproductions.study import Study


def cells(scale: str, folder: Path, model: str) -> Grid:
    load(METHODS["fedqhd"], "fedrl reproduce", "fedqhd")  # says what to install
    return grid_of(read_plan(scale))


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    """The runs of these parts, and the errors that need a trained Q*."""
    wanted = [cell for part in parts for cell in study.grid.cells[part]]
    needs = partial(first_call, study.place.runs)
    found = tasks_of(playable(wanted, study.absent), study.grid, study.place, needs)
    for part in parts:
        for one in measurements(read_plan(study.scale), part, study.place.runs):
            trained = Need(one.reference.name, partial(finished, one.reference),
                           partial(compute, one.reference))  # fmt: skip
            key = (part, one.name, one.digest)
            work = partial(record_values, partial(gap.averaged, one), *key, study.place.store)
            found.append(Task(*key, work, needs=(trained,)))
    return found


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
    kept = {}
    for part in ("dimension", "anchors"):
        keys = [(part, m.name, m.digest) for m in measurements(plan, part, study.place.runs)]
        kept[part] = [found["values"] for key in keys if (found := store.read(*key))]
    tried = {key: record["values"] for key, record in tries_records(study).items()}
    full = read_plan("full")
    beside = read_runs(store, full.table()) if study.scale == "small" else {}
    return Results(plan, study.runs(), kept, beside, full, tried)


def tries_records(study: Study) -> dict[tuple[str, str], Data]:
    """By task and learner, the records of all tries; the full scale's were made at the small."""
    plan = read_plan("small" if study.scale == "full" else study.scale)
    found = {}
    for task in plan.tasks:
        for method, encoders in plan.learners():
            name = f"{method}-{encoders}"
            if record := study.place.store.read(*choices.tries_key(plan, task, name)):
                found[task, name] = record
    return found
