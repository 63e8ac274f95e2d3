"""A comparison in a few lines, for a terminal: what the page says first."""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.core.number_format import label
from fedrl.report import differences
from fedrl.report.confounders import confounders
from fedrl.report.run_groups import Group, main_metric, no_result, summary_row
from fedrl.report.worlds import by_world, not_compared

SEEDS = "seeds"
AS_IT_SEEMS = {"running": "running, or killed: fedrl run --resume goes on"}
"""Who was killed could not say so."""


def summary(groups: Sequence[Group], left_out: Sequence[str] = ()) -> str:
    """A row per group with its final value and its mean over rounds, who is told apart, and what is
    no part of that."""
    metric = main_metric(groups)
    figures = [summary_row(group, metric) for group in groups]
    finals = [name for name in figures[0] if name.startswith("final ")]
    kept = [*finals, "mean over rounds", SEEDS]
    rows = [["", *kept]]
    for group, row in zip(groups, figures, strict=True):
        rows.append([group.name, *(row[key] for key in kept[:-1]), row[SEEDS].partition(":")[0]])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    notes = [*_unfinished(groups), *(f"left out: {line}" for line in left_out)]
    verdicts = _verdicts(groups, metric)
    return "\n".join([*lines, *notes, *confounders(groups, metric), *verdicts])


def _unfinished(groups: Sequence[Group]) -> list[str]:
    """Runs that go on, or that somebody stopped: their numbers are not the last ones."""
    return [
        f"unfinished: {run.path.name} is at round {max(run.rounds)} of "
        f"{run.config.get('rounds', '?')} ({'no result, ' if no_result(run) else ''}"
        f"{AS_IT_SEEMS.get(run.status, run.status)})"
        for group in groups
        for run in group.runs
        if run.status != "finished"
    ]


def _verdicts(groups: Sequence[Group], metric: str) -> list[str]:
    worlds = by_world(groups)
    if len(worlds) == 1:
        return _verdict(groups, metric)
    lines = [
        f"{world}: {line}" for world, same in worlds.items() for line in _verdict(same, metric)
    ]
    return [not_compared(worlds, label(metric)), *lines]


def _verdict(groups: Sequence[Group], metric: str) -> list[str]:
    if differences.one_seed_each(groups, metric):
        return ["one seed each: nothing follows about which is better; several: --seeds 0-4"]
    once = differences.once(groups, metric)
    alone = [f"one seed, cannot be compared: {', '.join(once)}"] if once else []
    having = differences.best_first(differences.repeated(groups, metric), metric)
    if len(having) < 2:
        return alone
    best, near = having[0].name, differences.rivals(having, metric)
    said = f"best by final {label(metric)}, seed by seed: {best}"
    if front := differences.ahead(having, metric):
        said = (
            f"no winner by final {label(metric)}: {best} ends highest, and where both have been "
            f"{', '.join(front)} is better"
        )
    elif near:
        told = differences.not_told_apart(near, len(having))
        said = f"no winner by final {label(metric)}: {best} is {told}"
    if by_how_much := differences.in_words(having, metric):
        said += f": {by_how_much}" if near or front else f", {by_how_much}"
    return [said, differences.means_say(having, metric), *alone]
