"""`fedrl eval`: a run's last checkpoint in every client's environment."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedrl.config.build import build_algorithm
from fedrl.config.loading import read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.federation import client_sampling, round_loop
from fedrl.runs.checkpoint import Damaged, read_checkpoint
from fedrl.runs.resume_rules import require_same
from fedrl.runs.run_dir import RunDir, require_run


def newest(checkpoints: list[Path], config: Config | None = None) -> round_loop.Snapshot | None:
    """The newest one that is whole; unlike a resumed run, a reader moves no file.

    A `config` that is not of these checkpoints is refused.
    """
    for checkpoint in checkpoints:
        try:
            snapshot, notes = read_checkpoint(checkpoint)
        except Damaged as error:
            print(f"{error}; taking the one before it", file=sys.stderr)
            continue
        if config is not None:
            require_same(config, notes["settings"], checkpoint.parent.parent)
        return snapshot
    return None


def evaluate(path: Path, episodes: int, seed: int) -> int:
    """Print what every client gets from the newest checkpoint: a mean return, or success."""
    require_run(path)
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}; it must be at least 1")
    config = resolve(read_recipe(path / "config.toml"))
    snapshot = newest(RunDir(path).checkpoints(), config)
    if snapshot is None:
        raise UserError(f"{path} has no whole checkpoint")
    algorithm = build_algorithm(config)
    drawn = seeding.derive(seed, "eval command", snapshot.round)
    rows = np.stack(
        [algorithm.evaluate_clients(state, drawn, episodes) for state in snapshot.states]
    )
    groups = client_sampling.groups(config.federation)
    table = Table(title=f"{config.algorithm.name} on {config.world.name}, round {snapshot.round}")
    table.add_column("client", justify="right")
    of_agents = hasattr(algorithm, "play_tasks")  # language agents, which win a task or not
    table.add_column("success" if of_agents else "mean return", justify="right")
    if len(groups) > 1:
        table.add_column("of its own model", justify="right")
    for client, value in enumerate(rows.mean(0)):
        own = [f"{rows[client, client]:.3f}"] if len(groups) > 1 else []
        table.add_row(str(client), f"{value:.3f}", *own)
    console = Console(highlight=False)
    console.print(table)
    spread = rows.mean(0)
    console.print(
        f"all {len(spread)} clients: mean {spread.mean():.4f}, worst {spread.min():.4f}, "
        f"best {spread.max():.4f}"
    )
    return 0
