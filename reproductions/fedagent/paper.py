"""FedAgent, measured: warm starts first, then labels, then all runs of a scale side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError
from fedrl.runs.grid import accelerator, compute, cost, finished, reached, read
from fedrl.runs.process_pool import Job, cores, finish, pool
from reproductions.fedagent import cells as plan
from reproductions.fedagent.models import label, make
from reproductions.fedagent.page import Found, write

Say = Callable[[str], None]

PARTS = tuple(dict.fromkeys(part for parts in plan.PARTS.values() for part in parts))
ON_A_GPU = 3
"""Runs at a time on a GPU: small models wait for kernel launches, not for each other."""


@dataclass(frozen=True)
class Results:
    """What was found: by scale and part."""

    scales: Mapping[str, Mapping[str, Found]]


def measure_all(
    scale: str,
    only: tuple[str, ...],
    folder: Path,
    say: Say,
    processes: int | None = None,
    minutes: float | None = None,
    model: str | None = None,
) -> Results:
    """Compute what is missing, as far as the time goes; read this scale and the published others.

    `model` (or the environment's FEDRL_MODEL) is what the full scale's warm starts begin with.
    """
    for part in only:
        if part not in plan.PARTS[scale]:
            parts = ", ".join(plan.PARTS[scale])
            raise UserError(f"--only {part}: the parts of the scale {scale} are {parts}")
    if model and scale != "full":
        raise UserError(f"--model is for the full scale: the scale {scale} has a model of its own")
    model = model or os.environ.get("FEDRL_MODEL")
    if processes != 0:
        sizes = sized(scale, model)
        _compute(sizes, scale, only or plan.PARTS[scale], folder, say, processes, minutes)
    scales = {}
    for name in dict.fromkeys((scale if scale == "smoke" else "small", "full")):
        place = folder.parent / name
        if name != scale and not place.is_dir():
            continue
        cells = plan.cells(name, sized(name, model), place)
        scales[name] = {part: read(place, found) for part, found in cells.items()}
    return Results(scales)


def sized(scale: str, model: str | None) -> plan.Scale:
    sizes = plan.SCALES[scale]
    return plan.with_model(sizes, model) if model and scale == "full" else sizes


def write_page(results: Results, scale: str, page: Path) -> None:
    write(results.scales, scale, page)


def _compute(
    sizes: plan.Scale,
    scale: str,
    parts: tuple[str, ...],
    folder: Path,
    say: Say,
    processes: int | None,
    minutes: float | None,
) -> None:
    until = None if minutes is None else time.time() + 60 * minutes
    try:
        processes = processes or (ON_A_GPU if accelerator() else cores())
    except ModuleNotFoundError as error:
        raise missing_extra(error, "fedrl reproduce fedagent", "llm") from error
    planned = plan.cells(scale, sizes, folder)
    wanted: dict[str, Config] = {}
    for cell in (cell for part in parts for cell in planned[part]):
        say(f"{cell.part}: {cell.name}: {len(cell.seeds)} × {cell.epochs()} client epochs")
        for seed in cell.seeds:
            wanted[f"{cell.part}: {cell.name}, seed {seed}"] = cell.config(seed, folder)
    missing = {name: one for name, one in wanted.items() if not finished(one)}
    say(f"{len(wanted) - len(missing)} of {len(wanted)} runs are there")
    if not missing:
        return
    with pool(min(processes, len(missing))) as executor:
        for jobs in (
            _warm_starts(sizes, missing.values(), folder),
            _labels(sizes, missing.values(), folder),
            [Job(n, cost(one, reached(one)), partial(compute, one)) for n, one in missing.items()],
        ):
            if not finish(executor, jobs, say, until):
                break
    if left := sum(not finished(one) for one in missing.values()):
        say(f"{left} of {len(wanted)} runs are missing; the same command goes on where it was")


def _warm_starts(sizes: plan.Scale, missing: Iterable[Config], folder: Path) -> list[Job]:
    worlds = dict.fromkeys(config.world.name for config in missing)
    starts = [plan.warm_start(sizes, world) for world in worlds]
    return [
        Job(f"warm start of {start.name}", start.settings.steps, partial(make, start, path))
        for start in starts
        if not (path := start.path(folder)).is_dir()
    ]


def _labels(sizes: plan.Scale, missing: Iterable[Config], folder: Path) -> list[Job]:
    """Of the household's training tasks, where a hardness partition asks for them."""
    paths = {config.partition.labels for config in missing} - {""}
    config = resolve(plan.recipe_of(sizes, "household", folder)) if paths else None
    return [
        Job("labels of the training tasks", 1.0, partial(label, config, Path(path)))
        for path in sorted(paths)
        if config is not None and not Path(path).is_file()
    ]
