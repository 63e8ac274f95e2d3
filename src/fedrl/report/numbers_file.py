"""A report's numbers as CSV, for whoever draws or counts differently: a line per value."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from fedrl.report.run_groups import Group
from fedrl.report.worlds import level_of, methods

COLUMNS = ("group", "method", "level", "seed", "run", "round", "metric", "value")


def write(groups: Sequence[Group], path: Path) -> None:
    """Every metric of every round of every run, as it was logged."""
    names, levels = methods(groups), level_of(groups)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for group in groups:
            who = group.name, names[group.name], levels[group.name]
            for run in group.runs:
                about = *who, run.config.get("seed", ""), run.path.name
                for number, metrics in run.rounds.items():
                    for metric, value in sorted(metrics.items()):
                        writer.writerow([*about, number, metric, repr(value)])
