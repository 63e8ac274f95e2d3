"""FedRLHF, measured: answers and warm starts first, then all runs of a scale, then the bound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedrl.algorithms import METHODS
from fedrl.config.schema import Config
from fedrl.core.registry import load, missing_extra
from fedrl.core.types import UserError
from fedrl.datasets.fetch import root
from fedrl.runs.grid import RunCell, accelerator, compute, cost, find, finished, reached, read
from fedrl.runs.process_pool import Job, cores, finish, pool
from fedrl.runs.run_dir import RunDir
from reproductions.fedrlhf import cells as plan
from reproductions.fedrlhf import imdb_cells as texts
from reproductions.fedrlhf import logs, theory
from reproductions.fedrlhf.models import make
from reproductions.fedrlhf.page import write
from reproductions.fedrlhf.results import Results

Say = Callable[[str], None]

PARTS = plan.PARTS
WRITING = 50.0
"""How much longer a batch of texts takes than a client's round on ratings, about."""


def measure_all(
    scale: str,
    only: tuple[str, ...],
    folder: Path,
    say: Say,
    processes: int | None = None,
    minutes: float | None = None,
    model: str | None = None,
) -> Results:
    """Compute what is missing of the wanted parts, as far as the time goes; read all there is.

    `model` (or the environment's FEDRL_MODEL) is what the full scale's runs on reviews begin with.
    """
    if model and scale != "full":
        raise UserError(f"--model is for the full scale: the scale {scale} makes its own model")
    model = model or os.environ.get("FEDRL_MODEL")
    wanted = only or PARTS
    load(METHODS["fedrlhf"], "fedrl reproduce", "fedrlhf")  # says what to install
    ratings = sized(scale, folder)
    if ratings != plan.SCALES[scale]:
        say("MovieLens is not here: generated ratings stand in (`fedrl data movielens` gets it)")
    if processes != 0:
        work = gather(scale, wanted, ratings, folder, model)
        _compute(work, folder, say, processes, minutes)
    return collect(scale, ratings, folder, model)


def sized(scale: str, folder: Path) -> plan.Scale:
    """What is measured on ratings: the genuine ones where they, or runs with them, are there."""
    sizes = plan.SCALES[scale]
    if sizes.world["source"] == "generated":
        return sizes
    try:
        root("movielens")
    except UserError:
        place = ratings_folder(scale, folder)
        first = plan.movielens(sizes)[0]
        if not any(find(first.config(seed, place)) for seed in first.seeds):
            return replace(sizes, world=plan.GENERATED)
    return sizes


def ratings_folder(scale: str, folder: Path) -> Path:
    """The small scale is the paper's size on ratings: the full one has the same runs."""
    return folder.parent / "small" if scale == "full" else folder


def sized_texts(scale: str, model: str | None) -> texts.Texts:
    sizes = texts.SCALES[scale]
    return replace(sizes, model=model) if model and scale == "full" else sizes


@dataclass(frozen=True)
class Work:
    """What there is to compute, in the order in which it must be: files, then runs, then bounds."""

    logs: Sequence[tuple[logs.Log, Path]]
    models: Sequence[tuple[texts.Texts, Path]]
    runs: Mapping[str, Config]
    bounds: Sequence[tuple[theory.Measurement, Path]]


def gather(
    scale: str, wanted: Sequence[str], ratings: plan.Scale, folder: Path, model: str | None
) -> Work:
    """What of the wanted parts is not there."""
    place = ratings_folder(scale, folder)
    planned = plan.cells(ratings, place)
    runs = configured([c for part in wanted if part in planned for c in planned[part]], place)
    models = []
    if "imdb" in wanted:
        sizes = sized_texts(scale, model)
        start = texts.warm_start(sizes)
        if start is not None and not start.path(folder).is_dir():
            models.append((sizes, folder))
        runs |= configured(texts.cells(sizes, folder), folder)
    told = [plan.log_of(ratings, kind, seed) for kind in logs.KINDS for seed in ratings.seeds]
    answers = [
        (log, place) for log in told if "feedback" in wanted and not log.place(place).is_dir()
    ]
    bounds = [
        (one, place)
        for one in plan.bounds(ratings)
        if "bound" in wanted and theory.read(one, place) is None
    ]
    return Work(answers, models, runs, bounds)


def configured(cells: Sequence[RunCell], folder: Path) -> dict[str, Config]:
    return {
        f"{cell.part}: {cell.name}, seed {seed}": cell.config(seed, folder)
        for cell in cells
        for seed in cell.seeds
    }


def collect(scale: str, ratings: plan.Scale, folder: Path, model: str | None) -> Results:
    """What is on disk; of reviews, both published scales' runs."""
    place = ratings_folder(scale, folder)
    parts = {part: read(place, cells) for part, cells in plan.cells(ratings, place).items()}
    found = {}
    for name in ("smoke",) if scale == "smoke" else ("small", "full"):
        there = folder.parent / name
        if name == scale or there.is_dir():
            found[name] = read(there, texts.cells(sized_texts(name, model), there))
    files = [file for one in plan.bounds(ratings) if (file := theory.read(one, place)) is not None]
    return Results(ratings, parts, found, ratings.world["source"] != "generated", files)


def write_page(results: Results, scale: str, page: Path) -> None:
    write(results, scale, page)


# Computing


def _compute(
    work: Work, folder: Path, say: Say, processes: int | None, minutes: float | None
) -> None:
    until = None if minutes is None else time.time() + 60 * minutes
    missing = {name: one for name, one in work.runs.items() if not finished(one)}
    say(f"{len(work.runs) - len(missing)} of {len(work.runs)} runs are there")
    if not missing and not work.bounds:
        return
    several = processes or processes_for(missing)
    with pool(min(several, len(missing) + len(work.bounds))) as executor:
        for jobs in (
            [Job(f"answers, {log.kind}, seed {log.seed}", 1.0, partial(logs.write, log, place))
             for log, place in work.logs],
            [warm_start(sizes, place) for sizes, place in work.models],
            [Job(name, lasting(one), partial(train, one, several))
             for name, one in missing.items()],
            [Job(one.name, 1.0, partial(theory.compute, one, place)) for one, place in work.bounds],
        ):  # fmt: skip
            if not finish(executor, jobs, say, until):
                break
    if left := sum(not finished(one) for one in missing.values()):
        say(f"{left} of {len(work.runs)} runs are missing; the same command goes on where it was")


def processes_for(missing: Mapping[str, Config]) -> int:
    """One where a language model is trained on a GPU, else one per core."""
    if not any(is_text(one) for one in missing.values()):
        return cores()
    try:
        return 1 if accelerator() else cores()
    except ModuleNotFoundError as error:
        raise missing_extra(error, "fedrl reproduce fedrlhf", "llm") from error


def is_text(config: Config) -> bool:
    return METHODS[config.algorithm.name].kind == "reviews"


def lasting(config: Config) -> float:
    """Which run of a list takes longest."""
    left = cost(config, reached(config))
    return left * config.algorithm.batches * WRITING if is_text(config) else left


def warm_start(sizes: texts.Texts, folder: Path) -> Job:
    start = texts.warm_start(sizes)
    assert start is not None
    return Job("warm start on public reviews", 1.0, partial(make, start, start.path(folder)))


def train(config: Config, processes: int) -> None:
    """The run, with a note of where and how many were computed at once."""
    compute(config)
    path = find(config)
    assert path is not None
    directory = RunDir(path)
    noted = {"processes": processes} | ({"accelerator": accelerator()} if is_text(config) else {})
    directory.write_meta(directory.read_meta() | noted)
