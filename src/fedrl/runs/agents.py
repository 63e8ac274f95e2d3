"""What is done with a trained agent: `fedrl eval RUN --split`, `fedrl label`, `fedrl export`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedrl.config.build import build_algorithm
from fedrl.config.loading import read_recipe, resolve
from fedrl.core import seeding
from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.federation import round_loop
from fedrl.partition import write_labels
from fedrl.runs.evaluate import newest
from fedrl.runs.run_dir import RunDir, require_run
from fedrl.runs.warmstart import whole

AT_ONCE = 256
"""Episodes side by side: what a progress line counts in."""


def trained(path: Path, can: str, what: str) -> tuple[Any, round_loop.Snapshot]:
    """The algorithm of a run and its newest checkpoint, if the algorithm has the method `can`."""
    require_run(path)
    config = resolve(read_recipe(path / "config.toml"))
    algorithm = build_algorithm(config)
    if not hasattr(algorithm, can):
        raise UserError(f"{path} is a run of {config.algorithm.name}, which trains no {what}")
    snapshot = newest(RunDir(path).checkpoints(), config)
    if snapshot is None:
        raise UserError(f"{path} has no whole checkpoint")
    return algorithm, snapshot


def agent(path: Path) -> tuple[Any, round_loop.Snapshot]:
    """The algorithm and the newest checkpoint of a run of language agents."""
    return trained(path, "play_tasks", "text agent")


def evaluate_split(path: Path, split: str, seed: int) -> int:
    """Success by type of task on one split; several states are averaged.

    The interval is of one model: the mean of several is no share of tasks won.
    """
    algorithm, snapshot = agent(path)
    if split not in algorithm.world.splits:
        raise UserError(f"--split is {split!r}; {suggestion(split, list(algorithm.world.splits))}")
    tasks = list(algorithm.world.tasks(split))
    if not tasks:
        raise UserError(f"--split {split}: the world has no such tasks")
    won = np.mean([_won(algorithm, state, tasks, seed) for state in snapshot.states], axis=0)
    kinds = np.array([task.category for task in tasks])
    alone = len(snapshot.states) == 1
    table = Table(title=f"success on {split}, round {snapshot.round}")
    for column in ("type of task", "tasks", "success", *["95% interval"] * alone):
        table.add_column(column, justify="left" if column == "type of task" else "right")
    for kind in sorted(set(kinds)):
        table.add_row(kind, *_share(won[kinds == kind], alone))
    table.add_row("all", *_share(won, alone), style="bold")
    Console(highlight=False).print(table)
    return 0


def _share(won: np.ndarray, interval: bool) -> list[str]:
    """How many, what share of them was won, and between which shares that leaves the truth."""
    low, high = wilson(float(won.mean()), len(won))
    return [str(len(won)), f"{won.mean():.1%}", *[f"{low:.1%} – {high:.1%}"] * interval]


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95% interval of a share that was found in `count` tries.

    Wilson's: unlike share ± 1.96 standard errors it has a width where all or nothing was won.
    """
    z = 1.96
    scale = 1 + z**2 / count
    centre = (share + z**2 / (2 * count)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def label(path: Path, out: Path, seed: int) -> int:
    """Which training tasks the run's agent solves: the file that `hardness` partitions by.

    It sees the tasks of all clients, as only a simulation can.
    """
    algorithm, snapshot = agent(path)
    if out.exists():
        raise UserError(f"{out} exists already; name another file, or delete it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.touch()  # a place that cannot be written is found out before the episodes
        out.unlink()
    except OSError as error:
        raise UserError(
            f"--out {out}: cannot write this file ({error.strerror}); name another place"
        ) from error
    won = write_successes(algorithm, snapshot.states[0], out, seed)
    print(f"{int(won.sum()):,} of {len(won):,} tasks succeed; labels: {out}")
    return 0


def write_successes(algorithm: Any, state: Any, out: Path, seed: int) -> np.ndarray:
    """Play every training task once and write which ones were won, 1 or 0 [tasks]."""
    tasks = list(algorithm.world.tasks("train"))
    won = _won(algorithm, state, tasks, seed)
    write_labels(out, {task.id: bool(w) for task, w in zip(tasks, won, strict=True)})
    return won


def export(path: Path, out: Path) -> int:
    """The newest checkpoint's model as an ordinary folder, for transformers or the next run."""
    algorithm, snapshot = trained(path, "save", "language model")
    if len(snapshot.states) > 1:
        raise UserError(
            f"{path} has {len(snapshot.states)} models, one per client: only a run with one model "
            "can be exported"
        )
    with whole(out) as half:
        algorithm.save(snapshot.states[0]["theta"], half)
    print(f"model of round {snapshot.round}: {out}")
    return 0


def _won(algorithm: Any, state: Any, tasks: list[Any], seed: int) -> np.ndarray:
    """1 for a task that was won [tasks]."""
    console = Console(stderr=True)
    won: list[bool] = []
    with console.status("playing …") as status:
        for start in range(0, len(tasks), AT_ONCE):
            part = tasks[start : start + AT_ONCE]
            drawn = seeding.derive(seed, "agents", start)
            won += algorithm.play_tasks(state["theta"], part, drawn).won
            status.update(f"{len(won):,} of {len(tasks):,} tasks played, {sum(won):,} won")
    return np.array(won, float)
