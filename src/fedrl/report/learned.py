"""What a single run of a language agent learned, in words: before training, and after it."""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.core.intervals import wilson
from fedrl.core.number_format import is_share, label, sentence_case
from fedrl.report.run_groups import Group, common_rounds, trains_agents
from fedrl.runs.evaluated_tasks import KEY, few_tasks
from fedrl.runs.main_metric import beside
from fedrl.runs.read import Run

ONE_MODEL = ("federated", "centralized")
"""Federations whose success is one model's share of tasks, which an interval can be told of."""


def learned(groups: Sequence[Group], metric: str) -> str:
    """What stands behind the final number; nothing where there are more runs than one."""
    if len(groups) != 1 or len(groups[0].runs) != 1 or not trains_agents(groups[0].config):
        return ""
    (run,) = groups[0].runs
    last = max(common_rounds([run], metric)[1], default=0)
    now = run.rounds[last]
    second = beside(metric, run.config)
    other = f" ({label(second)} {now[second]:.1%})" if second in now else ""
    if not last or metric not in run.rounds.get(0, {}):
        return other
    before, after = run.rounds[0][metric], now[metric]
    return (
        f"{other}: before training {_told(run, metric, before)}, after round {last} "
        f"{_told(run, metric, after)}{_which(run, metric)}"
    )


def few_tasks_warnings(groups: Sequence[Group]) -> list[str]:
    """Of evaluations in which chance decides."""
    found = {few_tasks(_tasks(run)) for group in groups for run in group.runs}
    return [f"{sentence_case(line)}." for line in sorted(found) if line]


def _tasks(run: Run) -> int:
    """How many it was evaluated on; 0 where nobody wrote it down."""
    count = run.meta.get(KEY)
    return count if isinstance(count, int) and count > 0 else 0


def _has_interval(run: Run, metric: str) -> bool:
    kind = run.config.get("federation.kind", "federated")
    return is_share(metric) and kind in ONE_MODEL and _tasks(run) > 0


def _told(run: Run, metric: str, value: float) -> str:
    if not _has_interval(run, metric):
        return f"{value:.1%}" if is_share(metric) else f"{value:.4g}"
    low, high = wilson(value, _tasks(run))
    return f"{value:.1%} ({low:.1%} – {high:.1%})"


def _which(run: Run, metric: str) -> str:
    return f"; 95% intervals of {_tasks(run)} tasks" if _has_interval(run, metric) else ""
