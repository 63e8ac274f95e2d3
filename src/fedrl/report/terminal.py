"""A comparison in a few lines, for a terminal: what the page says first."""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.core.number_format import label
from fedrl.report import differences
from fedrl.report.run_groups import Group, main_metric, summary_row
from fedrl.report.worlds import by_world, not_compared

SEEDS = "seeds"


def summary(groups: Sequence[Group]) -> str:
    """A row per group with its final value and its mean over rounds, and who is told apart."""
    metric = main_metric(groups)
    figures = [summary_row(group, metric) for group in groups]
    kept = [*list(figures[0])[:1], "mean over rounds", SEEDS]
    rows = [["", *kept]]
    for group, row in zip(groups, figures, strict=True):
        rows.append([group.name, *(row[key] for key in kept[:-1]), row[SEEDS].partition(":")[0]])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([*lines, *_verdicts(groups, metric)])


def _verdicts(groups: Sequence[Group], metric: str) -> list[str]:
    worlds = by_world(groups)
    if len(worlds) == 1:
        return _verdict(groups, metric)
    lines = [
        f"{world}: {line}" for world, same in worlds.items() for line in _verdict(same, metric)
    ]
    return [not_compared(list(worlds), label(metric)), *lines]


def _verdict(groups: Sequence[Group], metric: str) -> list[str]:
    having = differences.best_first(
        [group for group in groups if differences.by_seed(group, metric)], metric
    )
    if len(having) < 2:
        return []
    if differences.one_seed_each(groups, metric):
        return ["one seed each: nothing follows about which is better; several: --seeds 0-4"]
    if near := differences.rivals(having, metric):
        return [
            f"no winner by final {label(metric)}: {having[0].name} is not told apart from "
            f"{', '.join(near)}"
        ]
    best = having[0].name
    return [f"by final {label(metric)}, seed by seed, {best} is told apart from every other one"]
