"""Clients that lie, measured: what every rule of aggregation keeps of a clean run under attack.

This is no paper's: the rules and the attacks are fedrl's own, described in docs/robustness.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedrl.core.registry import missing_extra
from fedrl.runs.grid import accelerator, finish_all, read
from fedrl.runs.process_pool import Job, cores
from reproductions.fedagent.models import make
from reproductions.robustness import cells as plan
from reproductions.robustness.page import write
from reproductions.robustness.shares import Board

Say = Callable[[str], None]
Results = dict[str, Board]

PARTS = plan.PARTS


def measure_all(
    scale: str,
    only: tuple[str, ...],
    folder: Path,
    say: Say,
    processes: int | None = None,
    minutes: float | None = None,
) -> Results:
    """Compute what is missing of the wanted worlds, as far as the time goes; read all there is."""
    sizes = plan.SCALES[scale]
    until = None if minutes is None else time.time() + 60 * minutes
    planned = {part: plan.cells(sizes, part, folder) for part in PARTS}
    for part in only or PARTS:
        if processes != 0:
            first = partial(_warm_start, sizes.worlds[part], folder)
            finish_all(planned[part], folder, say, processes or cores(), until, first)
    return {
        part: Board(sizes.worlds[part], read(folder, cells), sizes.rules, sizes.attacks)
        for part, cells in planned.items()
    }


def write_page(results: Results, scale: str, page: Path) -> None:
    write(results, scale, page)


def _warm_start(world: plan.World, folder: Path) -> list[Job]:
    """The model that runs start from, where there is one and it is not there yet."""
    start = world.warm_start
    if start is None:
        return []
    try:
        accelerator()  # before the pool would say of every run that a package is missing
    except ModuleNotFoundError as error:
        raise missing_extra(error, "fedrl reproduce robustness", "llm") from error
    path = start.path(folder)
    return [] if path.is_dir() else [Job("warm start", 1.0, partial(make, start, path))]
