"""Runs of the studies, in a pool of processes that may be stopped at any moment."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from examples.study.studies import EXAMPLES, STUDIES, Cell, cells
from fedrl.api import complete
from fedrl.config.loading import resolve
from fedrl.core.types import Json
from fedrl.runs.process_pool import Job, finish, pool
from reproductions.grid import changed
from reproductions.records import Store, origin, rounded

KEEP = ("eval/success", "eval/return", "train/success", "env/episodes")
SHORT = {"rounds": 1, "algorithm.tasks": 2, "algorithm.group": 2, "algorithm.eval_tasks": 4}
"""For a try: a round of a few episodes."""


def begin(name: str, work: Path) -> None:
    """A working folder with the example's code, data and model; one that is there stays."""
    folder = work / name
    if (folder / "ready").is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (EXAMPLES / STUDIES[name].folder).glob("*.*"):
        shutil.copy(file, folder)
    os.chdir(folder)
    STUDIES[name].begin()
    (folder / "ready").touch()


def perform(cell: Cell, work: Path, records: Path, short: Json) -> None:
    """Begin the run or go on with it, and write its record."""
    os.chdir(work / cell.study)
    place = {"seed": cell.seed, "out": "runs", "name": f"{cell.name}.{cell.digest}"}
    run = complete(resolve(changed({}, cell.settings() | short | place)))
    metrics = {
        name: rounded(list(zip(*found)))
        for name in KEEP
        if (found := [(r, m[name]) for r, m in run.rounds.items() if name in m])
    }
    meta = json.loads((run.path / "meta.json").read_text(encoding="utf-8"))
    failed = sum(m.get("cohort/failed", 0.0) for m in run.rounds.values())
    command = {"command": f"python -m examples.study run {cell.study}"}
    data = {
        "seed": cell.seed,
        "settings": cell.settings() | short,
        "metrics": metrics,
        "failures": int(failed),
        "seconds": rounded(meta["seconds"], 4),
        **(origin(meta) | command),
    }
    Store(records).write(cell.study, cell.name, cell.digest, data)


def run(
    names: Sequence[str],
    work: Path,
    records: Path,
    processes: int,
    minutes: float | None = None,
    short: bool = False,
) -> bool:
    """All cells without a record: tuning first, then what it chose. False if some are left."""
    until = None if minutes is None else time.time() + 60 * minutes
    say = partial(print, flush=True)
    absent = {name for name in names if (need := STUDIES[name].needs) and not find_spec(need)}
    for name in sorted(absent):
        say(f"{name} is skipped: {STUDIES[name].needs} is not installed")
    playable = [name for name in names if name not in absent]
    with pool(processes) as executor:
        folders = [Job(f"{name}: data and model", 1.0, partial(begin, name, work))
                   for name in playable]  # fmt: skip
        whole = finish(executor, folders, say, until)
        for _ in ("tuning", "reported"):
            missing = [c for name in playable for c in cells(name, records) if not c.read(records)]
            jobs = [
                Job(
                    f"{cell.study}: {cell.name}",
                    cell.cost,
                    partial(perform, cell, work, records, SHORT if short else {}),
                )
                for cell in missing
            ]
            whole = finish(executor, jobs, say, until) and whole
    return whole
