"""The one runner of all reproductions: what has no record is computed, in a pool, and recorded.

Work may be stopped at any moment. A run that was stopped goes on from its checkpoint, which is in
the folder of runs of this machine; what is finished has a record at once, and is never done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from fedrl.algorithms.fedagent.settings import Settings as AgentSettings
from fedrl.api import complete
from fedrl.config import build, parts
from fedrl.config.schema import Config
from fedrl.core.registry import missing_extra
from fedrl.core.types import Json, UserError
from fedrl.runs.grid import accelerator, compiled_once, cost, find, finished, reached
from fedrl.runs.process_pool import Job, cores, finish, pool
from fedrl.runs.run_dir import RunDir
from reproductions.grid import Cell, Grid
from reproductions.records import Store, of_run, of_seeds, origin

Say = Callable[[str], None]
ON_A_GPU = 3
"""Runs at a time on GPUs, where nobody can tell what they need: their models are not there yet."""
MOST_ON_A_GPU = 12
"""The same, however little they need: they share the GPU's time, too."""
CHUNK = 100
"""Seeds computed at once: more would not fit the caches."""
LANGUAGE = {"text", "reviews"}
"""Kinds of methods that train a language model."""


@dataclass(frozen=True)
class Need:
    """Something that cells read and that has no record: a model, labels, a run's checkpoint.

    `make` must be picklable. `after` names what it needs itself.
    """

    name: str
    there: Callable[[], bool]
    make: Callable[[], None]
    after: tuple[Need, ...] = ()


@dataclass(frozen=True)
class Task:
    """One record to be made, by `work`, which writes it; `rounds` is how far its run must go.

    Those of more `worth` are made first, and `then()` names what follows once a record is there.
    """

    part: str
    name: str
    digest: str
    work: Callable[[], None]
    cost: float = 1.0
    rounds: int = 0
    needs: tuple[Need, ...] = ()
    worth: float = 0.0
    then: Callable[[], Sequence[Task]] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.part, self.name, self.digest

    def recorded(self, store: Store) -> bool:
        record = store.read(*self.key)
        return record is not None and int(record.get("rounds", 0)) >= self.rounds


@dataclass(frozen=True)
class Place:
    """Where the runs and the records of a reproduction lie, and how many runs there are at once."""

    runs: Path
    store: Store
    processes: int = 1


Needs = Callable[[Config], tuple[Need, ...]]
"""What a run must find."""


def nothing(config: Config) -> tuple[Need, ...]:
    return ()


def tasks_of(cells: Iterable[Cell], grid: Grid, place: Place, needs: Needs = nothing) -> list[Task]:
    """Every record that these cells must have; a cell that two parts read is one."""
    found = [task for cell in cells for task in tasks(cell, grid, place, needs)]
    return list({task.key: task for task in found}.values())


def tasks(cell: Cell, grid: Grid, place: Place, needs: Needs) -> list[Task]:
    """A record for each seed, or one for all."""
    if cell.together:
        work = partial(record_seeds, cell, place.store)
        spent = cell.weight * cell.rounds * cell.clients_per_round * len(cell.seeds)
        return [Task(cell.part, cell.name, cell.digest(0), work, spent, cell.rounds)]
    found = []
    for order, seed in enumerate(cell.seeds):
        config = cell.config(seed, place.runs)
        work = partial(record_run, cell, seed, place, grid.keep, grid.keep_clients)
        spent = cell.weight * cost(config, reached(config))
        name, wanted = run_name(cell, seed), needs(config)
        worth = cell.worth - order if cell.worth else 0.0
        found.append(
            Task(cell.part, name, cell.digest(seed), work, spent, cell.rounds, wanted, worth)
        )
    return found


def run_name(cell: Cell, seed: int) -> str:
    return f"{cell.name}-seed{seed}"


# Measuring: what processes of the pool do


def record_run(
    cell: Cell, seed: int, place: Place, keep: Sequence[str], keep_clients: Sequence[str]
) -> None:
    """Begin the run or go on with it, and record how far it went."""
    config = cell.config(seed, place.runs)
    try:
        train(config, place.processes)
    finally:
        path = find(config)
        if path is not None and reached(config) >= 0:
            key = (cell.part, run_name(cell, seed), cell.digest(seed))
            data, before = of_run(cell, seed, path, keep, keep_clients), place.store.read(*key)
            if before is None or int(before["rounds"]) <= data["rounds"]:
                place.store.write(*key, data)  # another machine's may have gone further


def train(config: Config, processes: int) -> None:
    """The run to its last round, with a note of how many there were at once: its minutes depend
    on it."""
    if finished(config):
        return
    path = complete(config).path
    noted: Json = {"processes": processes}
    if LANGUAGE & set(parts.method(config.algorithm.name).kinds):
        noted["accelerator"] = accelerator()
    directory = RunDir(path)
    directory.write_meta(directory.read_meta() | noted)


def record_seeds(cell: Cell, store: Store) -> None:
    """All seeds of a cell, a chunk at a time."""
    from fedrl.algorithms.momentum.batched_seeds import run_seeds

    started = time.perf_counter()
    config = cell.resolved()
    make = partial(parts.world(config.world.name).maker, config.world, config.federation.clients)
    method = parts.method(config.algorithm.name).maker
    curves: dict[str, list[np.ndarray]] = {}
    at: dict[str, np.ndarray] = {}
    for start in range(0, len(cell.seeds), CHUNK):
        seeds = cell.seeds[start : start + CHUNK]
        points: dict[str, dict[int, np.ndarray]] = {}
        for number, metrics in run_seeds(
            config.algorithm, make, seeds, config.rounds, config.eval_every, method
        ):
            for metric, values in metrics.items():
                points.setdefault(metric, {})[number] = np.asarray(values, np.float64)
        at = {metric: np.array(list(by)) for metric, by in points.items()}
        for metric, by in points.items():
            curves.setdefault(metric, []).append(np.stack(list(by.values()), 1))
    joined = {metric: np.concatenate(parts) for metric, parts in curves.items()}
    data = of_seeds(cell, joined, at, time.perf_counter() - started)
    store.write(cell.part, cell.name, cell.digest(0), data)


def record_values(
    measure: Callable[[], object], part: str, name: str, digest: str, store: Store
) -> None:
    """Something that is no run: what `measure` returns is recorded as it is."""
    started = time.perf_counter()
    values = measure()
    seconds = round(time.perf_counter() - started, 2)
    store.write(part, name, digest, {"values": values, "seconds": seconds, **origin()})


# Running


def named(tasks: Sequence[Task], patterns: Sequence[str]) -> list[Task]:
    """Those whose names are like one of these; all of them without patterns."""
    return [t for t in tasks if not patterns or any(fnmatchcase(t.name, one) for one in patterns)]


def run_missing(
    tasks: Sequence[Task], place: Place, say: Say, processes: int, minutes: float | None = None,
    patterns: Sequence[str] = (),
) -> None:  # fmt: skip
    """Compute what has no record, side by side, as far as the time goes."""
    until = None if minutes is None else time.time() + 60 * minutes
    asked, tasks = tasks, named(tasks, patterns)
    if asked and not tasks:
        some = ", ".join(task.name for task in asked[:: max(1, len(asked) // 4)])
        told = f"--cells {' '.join(patterns)}: of what can be computed now none is called so"
        raise UserError(f"{told}; there are {some}, …")
    missing = [task for task in tasks if not task.recorded(place.store)]
    say(f"{len(tasks) - len(missing)} of {len(tasks)} cells have a record")
    if not missing:
        return
    with compiled_once(place.runs), pool(min(processes, len(missing))) as executor:
        for needs in levels(missing):
            absent = [need for need in needs if not need.there()]
            finish(executor, [Job(need.name, 1.0, need.make) for need in absent], say, until)
        ready = [task for task in missing if all(need.there() for need in task.needs)]
        known = {task.key for task in tasks}

        def job(task: Task) -> Job:
            return Job(f"{task.part}: {task.name}", task.cost, task.work, task.worth,
                       partial(following, task))  # fmt: skip

        def following(task: Task) -> list[Job]:
            """What may be made now, where it is new and has no record; needs are there by now."""
            more = [] if task.then is None else named(task.then(), patterns)
            new = [one for one in more if one.key not in known and not one.recorded(place.store)]
            known.update(one.key for one in new)
            return [job(one) for one in new]

        finish(executor, list(map(job, ready)), say, until, slots=processes)
    if left := sum(not task.recorded(place.store) for task in missing):
        say(f"{left} of {len(tasks)} cells are missing; the same command goes on where it was")


def levels(tasks: Sequence[Task]) -> list[list[Need]]:
    """What must be there before the tasks begin, each once, in an order in which it can be made."""
    found: dict[str, tuple[int, Need]] = {}

    def visit(need: Need) -> int:
        depth = 1 + max(map(visit, need.after), default=-1)
        found[need.name] = (depth, need)
        return depth

    for task in tasks:
        for need in task.needs:
            visit(need)
    several = range(1 + max((depth for depth, _ in found.values()), default=-1))
    return [[need for depth, need in found.values() if depth == level] for level in several]


def processes_for(cells: Iterable[Cell], on_a_gpu: int | None = None) -> int:
    """One per core; where language models are trained on a GPU `on_a_gpu`, or as many as fit by
    their estimates. Others would wait for room (`llm.gpu_share`)."""
    language = [
        cell for cell in cells if LANGUAGE & set(parts.method(cell.resolved().algorithm.name).kinds)
    ]
    if not language:
        return cores()
    try:
        return (on_a_gpu or fitting_at_once(language)) if accelerator() else cores()
    except ModuleNotFoundError as error:
        raise missing_extra(error, "fedrl reproduce", "llm") from error


def fitting_at_once(cells: Sequence[Cell]) -> int:
    """How many of these runs have room on the GPUs at the same time, the largest of them."""
    import torch

    from fedrl.llm.gpu_share import gpu_of

    needed = [needed_on_a_gpu(cell) for cell in cells]
    if None in needed:
        return ON_A_GPU
    largest = max(filter(None, needed))
    rooms = (gpu_of(index).free // largest for index in range(torch.cuda.device_count()))
    return min(max(sum(rooms), 1), MOST_ON_A_GPU)


def needed_on_a_gpu(cell: Cell) -> int | None:
    """Bytes of a run by its estimate; None where its model is not there, or of no known shape."""
    from fedrl.algorithms.fedagent.memory_estimate import estimate_memory
    from fedrl.llm.memory import CALIBRATION

    settings = cell.resolved().algorithm
    if not isinstance(settings, AgentSettings) or not Path(settings.model).exists():
        return None
    return estimate_memory(settings, settings.eval_tasks).memory.total + CALIBRATION.context


def unplayable(cells: Iterable[Cell]) -> dict[str, str]:
    """Worlds whose simulator is not installed, and what to do about it."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for cell in cells:
        config = cell.resolved()
        name = config.world.name
        if name in seen or not {"control", "discrete"} & set(parts.world(name).kinds):
            continue
        seen.add(name)
        try:
            build.build_world(config)
        except UserError as error:
            found[name] = str(error)
    return found


def playable(cells: Iterable[Cell], absent: Mapping[str, str]) -> list[Cell]:
    return [cell for cell in cells if cell.recipe["world"]["name"] not in absent]
