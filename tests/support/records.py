"""Records of runs that never were, for result pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reproductions.grid import Cell
from reproductions.records import Store
from reproductions.runner import run_name

META: Mapping[str, Any] = {
    "commit": "abc", "command": "fedrl reproduce", "hardware": {"cpu": "CPU", "cores": 2},
    "processes": 2, "seconds": 1.0, "failures": 0, "totals": {"env/steps": 1.0},
}  # fmt: skip


def write_run(
    store: Store,
    cell: Cell,
    seed: int,
    metrics: Mapping[str, Mapping[int, float]],
    **rest: Any,
) -> None:
    """A run whose metrics have these values by round."""
    last = max(number for by in metrics.values() for number in by)
    kept = {metric: [list(by), list(by.values())] for metric, by in metrics.items()}
    record = {**META, "seeds": [seed], "rounds": last, "metrics": kept, "phases": {}} | rest
    store.write(cell.part, run_name(cell, seed), cell.digest(seed), record)
