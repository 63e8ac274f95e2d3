"""Runs as a report sees them: grouped by what differs, and put into numbers.

Runs that differ only in their seed form a group. Every number of a group is taken over rounds that
all of its seeds have reached, so that no curve bends because a seed stopped early; what a group
cost (steps, bytes, time, failures) is of its runs as far as each went.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrl.algorithms import METHODS
from fedrl.core.intervals import interval
from fedrl.core.number_format import duration, is_share, label, plus_minus, si
from fedrl.core.types import UserError
from fedrl.report.run_labels import Config, families, group_names, repeated
from fedrl.runs.main_metric import MAIN, beside, main_metrics
from fedrl.runs.read import OF_A_SEED, Run

OF_ONE_CLIENT = re.compile(r"_client\d+$")
"""Numbers that a run has once for every client: too many to draw."""
OF_AGENTS = ("model", "group", "estimator", "answer_tokens")
"""Settings that all methods have that are built on FedAgent, and no others."""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[Run, ...]

    @property
    def config(self) -> Config:
        return repeated(self.runs[0].config)


def variant(run: Run) -> str:
    """What a sweep calls it; empty for a run that is of none."""
    name = str(run.config.get("name", ""))
    return OF_A_SEED.sub("", name) if OF_A_SEED.search(name) else ""


def trains_agents(config: Config) -> bool:
    """Whether these are runs of language agents: by the kind of the method, or, of one from
    outside, by the settings that it has of FedAgent. Its code may be nowhere here."""
    name = config.get("algorithm.name")
    if name in METHODS.builtin:
        return "text" in METHODS.builtin[str(name)].kinds
    return all(f"algorithm.{key}" in config for key in OF_AGENTS)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ only in `seed` together, in the order of their first runs."""
    members: dict[int, list[Run]] = {}
    for run, family in zip(runs, families([run.config for run in runs]), strict=True):
        members.setdefault(family, []).append(run)
    first = [same[0] for same in members.values()]
    names = group_names([repeated(run.config) for run in first], [variant(run) for run in first])
    return [
        Group(name, tuple(sorted(same, key=lambda run: (run.config.get("seed", 0), run.path))))
        for name, same in zip(names, members.values(), strict=True)
    ]


def no_result(run: Run) -> str:
    """Why its last numbers are no result to compare; empty where they are one."""
    if run.status == "finished":
        return ""
    where = f"{run.path.name} {{}} at round {max(run.rounds)} of {run.config.get('rounds', '?')}"
    if run.error:
        return f"{where.format('stopped on an error')}: {run.error}"
    told = {name for metrics in run.rounds.values() for name in metrics if name.startswith("eval/")}
    later = [metrics for number, metrics in run.rounds.items() if number > 0]
    if any(told.intersection(metrics) or not told for metrics in later):
        return ""
    return f"{where.format('is')} without an evaluation of what it learned"


def with_results(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs that may be compared, and a line about each that may not: beside seeds of its group
    that are finished, one that is not would cut all of them short, and a seed that is there twice
    would count as two. All of them where none may: what there is can still be looked at."""
    family = dict(zip(map(id, runs), families([run.config for run in runs]), strict=True))
    done = {family[id(run)] for run in runs if run.status == "finished"}

    def why_not(run: Run) -> str:
        if run.status == "finished" or family[id(run)] not in done:
            return no_result(run)
        return no_result(run) or (
            f"{run.path.name} is at round {max(run.rounds)} of {run.config.get('rounds', '?')}, "
            "beside finished seeds of the same"
        )

    kept = [run for run in runs if not why_not(run)]
    lines = [line for run in runs if (line := why_not(run))] if kept else []
    once = _once_per_seed(kept or runs)
    again = [
        f"{run.path.name} has seed {run.config.get('seed', 0)} of the same settings as "
        f"{twin.path.name}, so it is no further seed"
        for run in kept or runs
        if (twin := once[_repetition(run)]) is not run
    ]
    single = [run for run in kept or runs if once[_repetition(run)] is run]
    longer = _longer_twins(single)
    begun = [
        f"{run.path.name} is the first {max(run.rounds)} rounds of {longer[id(run)].path.name}, "
        "number for number, and nothing beside it"
        for run in single
        if id(run) in longer
    ]
    return [run for run in single if id(run) not in longer], [*lines, *again, *begun]


def _repetition(run: Run) -> str:
    """The same of runs that repeat each other, seed and all."""
    said = {"seed": run.config.get("seed", 0), **repeated(run.config)}
    return json.dumps(said, sort_keys=True, default=str)


def _longer_twins(runs: Sequence[Run]) -> dict[int, Run]:
    """By run of groups all of whose seeds have one: a run of more rounds that begins with its
    numbers. Compared, a method would stand against itself."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        said = {"seed": run.config.get("seed", 0), **repeated(run.config), "rounds": 0}
        alike.setdefault(json.dumps(said, sort_keys=True, default=str), []).append(run)
    found = {
        id(run): other
        for same in alike.values()
        for run, other in itertools.permutations(same, 2)
        if max(run.rounds) < max(other.rounds) and _begins_as(other, run)
    }
    family = dict(zip(map(id, runs), families([run.config for run in runs]), strict=True))
    alone = {family[id(run)] for run in runs if id(run) not in found}
    return {one: other for one, other in found.items() if family[one] not in alone}


def _begins_as(longer: Run, run: Run) -> bool:
    """Not in what only one of them measured: a last round is evaluated in any case."""
    pairs = ((metrics, longer.rounds.get(number, {})) for number, metrics in run.rounds.items())
    return all(
        str(one[key]) == str(other[key]) for one, other in pairs for key in one.keys() & other
    )


def _once_per_seed(runs: Sequence[Run]) -> dict[str, Run]:
    """Of runs that repeat each other the one that went farthest; of these the one begun last."""
    order = sorted(runs, key=lambda run: (
        run.status == "finished", max(run.rounds), str(run.meta.get("started", ""))
    ))  # fmt: skip
    return {_repetition(run): run for run in order}


# Numbers

Against = Callable[[Mapping[str, float]], float]


def bytes_sent(metrics: Mapping[str, float]) -> float:
    return metrics.get("comm/bytes_up", 0.0) + metrics.get("comm/bytes_down", 0.0)


def env_steps(metrics: Mapping[str, float]) -> float:
    return metrics.get("env/steps", 0.0)


def episodes_played(metrics: Mapping[str, float]) -> float:
    return metrics.get("env/episodes", 0.0)


def common_rounds(runs: Sequence[Run], metric: str) -> tuple[list[Run], list[int]]:
    """The runs that have the metric at all, and the rounds in which every one of them has it."""
    sets = [{r for r, metrics in run.rounds.items() if metric in metrics} for run in runs]
    having = [run for run, rounds in zip(runs, sets, strict=True) if rounds]
    return having, sorted(set.intersection(*filter(None, sets))) if having else []


def curve(
    runs: Sequence[Run], metric: str, against: Against | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x [points] and the metric [seeds, points]; `against` maps a round's metrics to its x.

    Seeds reach the same round after different numbers of steps, so each is read off its own curve
    at the seeds' mean steps.
    """
    having, rounds = common_rounds(runs, metric)
    if not rounds:
        return np.empty(0), np.empty((0, 0))
    y = np.array([[run.rounds[r][metric] for r in rounds] for run in having])
    if against is None:
        return np.array(rounds, dtype=float), y
    own = np.array([[against(run.rounds[r]) for r in rounds] for run in having])
    x = np.clip(own.mean(axis=0), own[:, 0].max(), own[:, -1].min())
    return x, np.array([np.interp(x, *pair) for pair in zip(own, y, strict=True)])


def over_rounds(rounds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A seed's mean over the run: the area under its curve, divided by its rounds."""
    width = rounds[-1] - rounds[0]
    return np.trapezoid(values, rounds, axis=1) / width if width else values[:, 0]


def mean_text(samples: np.ndarray, share: bool = False) -> str:
    """The mean over seeds and its interval, `478 ± 12`; shares in percent."""
    mean, half = interval(samples * 100 if share else samples)
    return plus_minus(float(mean), float(half), share)


def summary_row(group: Group, metric: str) -> dict[str, str]:
    """What the table says of a group."""
    rounds, values = curve(group.runs, metric)
    last = [list(run.rounds.values())[-1] for run in group.runs]
    failed = sum(failure_count(run) for run in group.runs)
    share = is_share(metric)
    row = {"final " + label(metric): "–", "at round": "–", "best": "–", "mean over rounds": "–"}
    if values.size:
        mean, _ = interval(values)
        best = int(np.nanargmax(mean)) if np.isfinite(mean).any() else -1
        row = {
            "final " + label(metric): mean_text(values[:, -1], share),
            "at round": f"{rounds[-1]:.0f}",
            "best": f"{mean_text(mean[[best]], share)} (round {rounds[best]:.0f})",
            "mean over rounds": mean_text(over_rounds(rounds, values), share),
        }
    second = beside(metric, group.config)
    if second and (values := curve(group.runs, second)[1]).size:
        row = after_first(row, "final " + label(second), mean_text(values[:, -1], True))
    if any(map(episodes_played, last)):
        row["episodes"] = si(float(np.mean([episodes_played(metrics) for metrics in last])))
    return row | {
        "environment steps": si(float(np.mean([env_steps(metrics) for metrics in last]))),
        "sent": si(float(np.mean([bytes_sent(metrics) for metrics in last])), "B"),
        **times(group.runs),
        "seeds": f"{len(group.runs)}: "
        + ", ".join(str(run.config.get("seed", "–")) for run in group.runs),
        "failures": str(failed),
    }


def after_first(row: dict[str, str], name: str, text: str) -> dict[str, str]:
    """A column more, in the second place."""
    (first, value), *others = row.items()
    return {first: value, name: text, **dict(others)}


def times(runs: Sequence[Run]) -> dict[str, str]:
    """Means per run. What a first round compiles is no part of the time that a method takes, so it
    stands apart; what some of the runs do not tell is a dash."""
    told: dict[str, list[float | None]] = {
        "wall time": [run.seconds for run in runs],
        "of it training": [run.training_seconds for run in runs],
        "of it start-up, compiling": [run.starting_seconds for run in runs],
    }
    return {name: _mean_duration(values) for name, values in told.items()}


def _mean_duration(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return duration(float(np.mean(known))) if len(known) == len(values) else "–"


def failure_count(run: Run) -> int:
    return len(run.failures) or int(run.rounds[max(run.rounds)]["cohort/failed_so_far"])


def main_metric(groups: Sequence[Group]) -> str:
    """Success or return on evaluation; else the first metric that all groups have. Where rewards
    are numbers in all groups, the return."""
    orders = [main_metrics(group.config) for group in groups]
    order = orders[0] if all(one == orders[0] for one in orders) else MAIN
    drawn = {
        name: [curve(g.runs, name)[1].size > 0 for g in groups] for name in drawn_metrics(groups)
    }
    everywhere = [name for name, has in drawn.items() if all(has)]
    somewhere = [name for name, has in drawn.items() if any(has)]
    for candidates in (everywhere, somewhere):
        for name in (*order, *candidates):
            if name in candidates:
                return name
    raise UserError("these runs have no metric to draw besides their costs")


def drawn_metrics(groups: Sequence[Group]) -> list[str]:
    names = {
        name
        for g in groups
        for run in g.runs
        for metrics in run.rounds.values()
        for name in metrics
        if not OF_ONE_CLIENT.search(name)
    }
    order = {"eval": 0, "train": 1}
    drawn = (name for name in names if name.partition("/")[0] not in ("comm", "env", "cohort"))
    return sorted(drawn, key=lambda name: (order.get(name.partition("/")[0], 2), name))
