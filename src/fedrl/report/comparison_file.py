"""What a report compares, as numbers: a row per group, and a row per pair of groups.

`Runs.compare` makes tables of them, and they lie beside a page as CSV.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedrl.core.intervals import interval
from fedrl.core.iqm import FEWEST, bootstrap_interval, iqm
from fedrl.core.types import Json
from fedrl.report.differences import by_seed, differences, final
from fedrl.report.run_groups import Group, curve, over_rounds
from fedrl.report.worlds import level_of, methods

MEASURES = {"final": final, "mean over rounds": over_rounds}
NUMBERS = ("mean", "low", "high", "iqm", "iqm_low", "iqm_high")
COMPARISON = ("group", "method", "level", "metric", "value", "round", "seeds", *NUMBERS)
DIFFERENCES = (
    "first", "second", "first_method", "second_method", "level", "metric", "value", "seeds",
    *NUMBERS, "told_apart",
)  # fmt: skip


def comparison(groups: Sequence[Group], metric: str) -> list[Json]:
    """Mean and 95% t interval over seeds of every group; IQM and bootstrap of four seeds or more.
    `round` is the last one that all of its seeds have; the level is a world's name where several
    are compared, and the method what the group is called without it."""
    rows, names, levels = [], methods(groups), level_of(groups)
    for group in groups:
        rounds = curve(group.runs, metric)[0]
        for value, measure in MEASURES.items():
            found = np.array([*by_seed(group, metric, measure).values()])
            if found.size:
                who = (group.name, names[group.name], levels[group.name])
                about = (*who, metric, value, int(rounds[-1]), len(found))
                rows.append(dict(zip(COMPARISON, (*about, *_numbers(found)), strict=True)))
    return rows


def paired_differences(groups: Sequence[Group], metric: str) -> list[Json]:
    """`first` less `second`, in the seeds that both have; told apart: the t interval is off 0."""
    rows, names, levels = [], methods(groups), level_of(groups)
    for value, measure in MEASURES.items():
        for one in differences(groups, metric, measure):
            who = (one.first, one.second, names[one.first], names[one.second], levels[one.first])
            about = (*who, metric, value, len(one.values))
            whole = (*about, *_numbers(one.values), one.decided)
            rows.append(dict(zip(DIFFERENCES, whole, strict=True)))
    return rows


def _numbers(values: np.ndarray) -> tuple[float, ...]:
    mean, half = map(float, interval(values))
    middle, low, high = np.nan, np.nan, np.nan
    if len(values) >= FEWEST:
        middle, (low, high) = float(iqm(values)), bootstrap_interval(values)
    return (mean, mean - half, mean + half, middle, float(low), float(high))


def write(groups: Sequence[Group], metric: str, folder: Path) -> list[Path]:
    """comparison.csv and differences.csv; what there is no number for is empty."""
    files = {
        folder / "comparison.csv": (COMPARISON, comparison(groups, metric)),
        folder / "differences.csv": (DIFFERENCES, paired_differences(groups, metric)),
    }
    for path, (columns, rows) in files.items():
        with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: _cell(cell) for key, cell in row.items()} for row in rows)
    return list(files)


def _cell(value: object) -> object:
    if isinstance(value, float):
        return "" if np.isnan(value) else repr(value)
    return value
