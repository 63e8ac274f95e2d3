"""FedQHD, measured: all runs of a scale side by side, then the errors that need a trained Q*."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedrl.algorithms import METHODS
from fedrl.config.build import build_algorithm, build_world
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.registry import load
from fedrl.core.types import Job as Work
from fedrl.core.types import UserError
from fedrl.runs.grid import RunCell, compute, find, finished, reached, read
from fedrl.runs.process_pool import Job, cores, finish, pool
from fedrl.runs.run_dir import RunDir
from reproductions.fedqhd import cells as plan
from reproductions.fedqhd import gap
from reproductions.fedqhd.methods import TASKS
from reproductions.fedqhd.page import write
from reproductions.fedqhd.results import Found, Results

Say = Callable[[str], None]

PARTS = plan.PARTS
DEEP_STEP = 7000
"""Features whose update takes as long as one of a network with two layers of 128."""
SIMULATED = 20_000
"""The same for a step of a world that is not compiled."""


def measure_all(
    scale: str,
    only: tuple[str, ...],
    folder: Path,
    say: Say,
    processes: int | None = None,
    minutes: float | None = None,
) -> Results:
    """Compute what is missing of the wanted parts, as far as the time goes; read all there is."""
    load(METHODS["fedqhd"], "fedrl reproduce", "fedqhd")  # says what to install
    sizes = plan.SCALES[scale]
    planned = plan.cells(sizes)
    absent = unplayable()
    wanted = only or tuple(part for part in PARTS if part not in plan.ON_REQUEST)
    if processes != 0:
        for task, why in absent.items():
            say(f"{TASKS[task]} is skipped: {why}")
        cells = [cell for part in wanted for cell in planned[part] if task_of(cell) not in absent]
        errors = [one for part in wanted for one in measurements(sizes, part, folder)]
        _compute(cells, errors, folder, say, processes or cores(), minutes)
    return collect(scale, folder, absent)


def collect(scale: str, folder: Path, absent: Mapping[str, str]) -> Results:
    """What is on disk. The full scale's settings were tuned at the small one."""
    sizes = plan.SCALES[scale]
    parts: dict[str, Found] = {
        part: read(folder, cells) for part, cells in plan.cells(sizes).items()
    }
    tuned = scale
    if scale == "full" and not any(one.runs for one in parts["tuning"].values()):
        tuned = "small"
        parts["tuning"] = read(folder.parent / tuned, list(plan.tuning(plan.SCALES[tuned])))
    full: Found = {}
    if scale == "small":
        full = read(folder.parent / "full", list(plan.table(plan.FULL)))
    errors = {
        part: [
            found for one in measurements(sizes, part, folder) if (found := gap.read(one, folder))
        ]
        for part in ("dimension", "anchors")
    }
    return Results(sizes, parts, errors, gap.USUAL, absent, tuned, full)


def write_page(results: Results, scale: str, page: Path) -> None:
    write(results, scale, page)


def unplayable() -> dict[str, str]:
    """Tasks whose simulator is not installed, and what to do about it."""
    found = {}
    for task in TASKS:
        config = runs_config(task)
        try:
            build_world(config)
        except UserError as error:
            found[task] = str(error)
    return found


def runs_config(task: str) -> Config:
    return plan.table_cell(plan.SMOKE, task, "fedqhd", "shared").config(0, Path())


def task_of(cell: RunCell) -> str:
    """The task's name as its recipe has it."""
    return str(cell.recipe["world"]["name"]).partition("-")[0]


def measurements(scale: plan.Scale, part: str, folder: Path) -> Iterator[gap.Measurement]:
    """The errors of a part: one for every draw, with the Oracles' Q* in turn."""
    if part not in ("dimension", "anchors"):
        return
    learner = plan.compiled(scale, part, scale.fixed, scale.fixed).config(0, folder)
    reference = plan.reference(scale)
    ridges = tuple(dict.fromkeys((gap.USUAL, learner.algorithm.ridge, gap.RIDGELESS)))
    by_size = tuple((d, scale.ratio * d) for d in scale.dimensions)
    by_count = tuple((scale.fixed, m) for m in scale.anchors)
    for draw in range(scale.draws):
        oracle = reference.config(scale.seeds[draw % len(scale.seeds)], folder)
        for source in gap.SOURCES[part]:
            yield gap.Measurement(
                part, draw, source, by_size if part == "dimension" else by_count, ridges,
                scale.fit_states, scale.held_out, learner, oracle,
            )  # fmt: skip


# Computing


def _compute(
    cells: list[RunCell],
    errors: list[gap.Measurement],
    folder: Path,
    say: Say,
    processes: int,
    minutes: float | None,
) -> None:
    until = None if minutes is None else time.time() + 60 * minutes
    wanted: dict[str, Config] = {}
    for cell in cells:
        for seed in cell.seeds:
            wanted[f"{cell.part}: {cell.name}, seed {seed}"] = cell.config(seed, folder)
    missing = {name: one for name, one in wanted.items() if not finished(one)}
    unknown = [one for one in errors if gap.read(one, folder) is None]
    say(f"{len(wanted) - len(missing)} of {len(wanted)} runs are there")
    if not missing and not unknown:
        return
    with pool(min(processes, len(missing) + len(unknown))) as executor:
        for jobs in (
            _first_calls(missing),
            [Job(n, cost(one), partial(train, one, processes)) for n, one in missing.items()],
            [Job(one.name, 1.0, partial(gap.compute, one, folder)) for one in unknown],
        ):
            if not finish(executor, jobs, say, until):
                break
    if left := sum(not finished(one) for one in missing.values()):
        say(f"{left} of {len(wanted)} runs are missing; the same command goes on where it was")


def train(config: Config, processes: int) -> None:
    """The run, with a note of how many were computed at once: its minutes depend on it."""
    compute(config)
    path = find(config)
    assert path is not None
    directory = RunDir(path)
    directory.write_meta(directory.read_meta() | {"processes": processes})


def _first_calls(missing: Mapping[str, Config]) -> list[Job]:
    """Kernels are compiled before the first run that is timed."""
    kinds = {(one.algorithm.name, one.world.name): one for one in missing.values()}
    return [
        Job(f"compile {name} for {world}", 1.0, partial(_first_call, one))
        for (name, world), one in kinds.items()
    ]


def _first_call(config: Config) -> None:
    brief = replace(config, algorithm=replace(config.algorithm, episodes=1))
    algorithm = build_algorithm(brief)
    state = algorithm.init(seeding.derive(config.seed, "init"))
    algorithm.local(Work(0, algorithm.broadcast(state, 1), None, 0))


def cost(config: Config) -> float:
    """Which run of a list takes longest: features read per step, times steps that may be left."""
    from fedrl.envs.discrete.worlds import TASKS as worlds

    s, world = config.algorithm, worlds[config.world.name]
    width: float = DEEP_STEP
    if hasattr(s, "features"):
        mean = sum(s.sizes) / len(s.sizes)
        width = mean if s.encoders == "own" else s.features
    if world.kernel is None:
        width += SIMULATED
    left = config.rounds - max(reached(config), 0)
    return left * config.federation.clients * s.episodes * world.limit * width
