"""What else differs between runs that are compared, so that what differs in their results may come
from it: settings that are no part of a method, samples, settings that were tuned for another
method."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from fedrl.core.number_format import si
from fedrl.report.differences import with_result
from fedrl.report.run_groups import Group
from fedrl.report.run_labels import differing
from fedrl.report.worlds import by_world, is_of_a_method
from fedrl.runs.run_dir import BEGUN_FOR

NO_SETTINGS = ("name", "packages")
"""What a run is called, and hashes of code, which go with a method."""
OF_ALL_METHODS = ("algorithm.model",)
"""Settings of a method's table that are no part of it, where all methods that are compared have
them."""
COHORT = "federation.cohort"
"""Who learns alone has none."""
SAMPLES = {"env/episodes": "episodes", "env/steps": "environment steps"}
"""What is counted of a run, the first that it has."""
ALIKE = 1.1
"""Samples that differ by less are as many."""
HOW_MANY = ("trajectories", "steps", "episodes", "tasks", "group", "queries", "epochs")
"""What settings end with that say how much is played. Where they are the same, a policy whose
episodes last longer takes more steps: that is a result."""
MAY_COME = "What differs in the results may come from that."


def confounders(groups: Sequence[Group], metric: str) -> list[str]:
    """A line about each, and once what follows from them."""
    lines = [
        *more_than_the_method(groups),
        *unequal_samples(groups, metric),
        *tuned_for_another(groups),
    ]
    if lines:
        lines[-1] += f" {MAY_COME if len(lines) == 1 else MAY_COME.replace('that', 'these')}"
    return [*lines, *resumed_for_more(groups)]


def more_than_the_method(groups: Sequence[Group]) -> list[str]:
    """Where methods are compared and something else differs as well."""
    lines = (line for same in by_world(groups).values() for line in _more_differs(same))
    return list(dict.fromkeys(lines))


def _more_differs(groups: Sequence[Group]) -> list[str]:
    keys = differing([group.config for group in groups])
    if not any(key in ("algorithm.name", "federation.kind") for key in keys):
        return []
    kind = ("federation.kind", "federated")
    cohorts = {g.config.get(COHORT) for g in groups if g.config.get(*kind) == "federated"}

    def is_asked_about(key: str) -> bool:
        if key in OF_ALL_METHODS:
            return not all(key in group.config for group in groups)
        return is_of_a_method(key) or key in NO_SETTINGS

    others = [
        key for key in keys if not is_asked_about(key) and (key != COHORT or len(cohorts) > 1)
    ]
    said = f"These runs differ in more than the method: {', '.join(others)}."
    return [said] if others else []


def unequal_samples(groups: Sequence[Group], metric: str) -> list[str]:
    """Where one learned from more than another by the same round: of other settings, or because a
    federation of M clients plays with all of them at once."""
    lines = []
    for same in by_world(groups).values():
        found = {group.name: count for group in same if (count := _samples(group, metric))}
        for unit in dict.fromkeys(unit for _, unit in found.values()):
            counts = {name: count for name, (count, its) in found.items() if its == unit}
            if unit == SAMPLES["env/steps"] and not _play_differently(same, counts):
                continue
            most, *others = sorted(counts, key=counts.__getitem__, reverse=True)
            fewer = [name for name in others if counts[most] > ALIKE * counts[name]][::-1]
            if fewer:
                times = [f"{counts[most] / counts[name]:.1f} times" for name in fewer]
                whose = [f"the {unit} of {fewer[0]}", *(f"those of {name}" for name in fewer[1:])]
                said = ", ".join(map(" ".join, zip(times, whose, strict=True)))
                each = ", ".join(si(counts[name]) for name in (most, *fewer[:-1]))
                lines.append(
                    f"{most} learned from {said} ({each} and {si(counts[fewer[-1]])} a round)."
                )
    return lines


def _play_differently(groups: Sequence[Group], named: Container[str]) -> bool:
    """A count that is 0, or that a method does not have, adds nothing to what is played."""
    configs = [group.config for group in groups if group.name in named]
    counts = [{key: value for key, value in one.items() if value or not key.endswith(HOW_MANY)}
              for one in configs]  # fmt: skip
    keys = differing(counts)
    return any(key.startswith("federation.") or key.endswith(HOW_MANY) for key in keys)


def _samples(group: Group, metric: str) -> tuple[float, str] | None:
    """A round's, the mean over its runs, and what they are."""
    for name, unit in SAMPLES.items():
        each = [
            run.rounds[last][name] / last
            for run in with_result(group, metric)
            if (last := max(run.rounds)) and name in run.rounds[last]
        ]
        if each and min(each) > 0:
            return float(np.mean(each)), unit
    return None


def tuned_for_another(groups: Sequence[Group]) -> list[str]:
    """Where runs are compared, a line for groups whose method was given settings that the recipe
    had chosen for another one: not a switch that all of them have alike, which nobody tunes."""
    found: dict[tuple[str, str], list[str]] = {}
    apart = differing([group.config for group in groups])
    for group in groups if len(groups) > 1 else ():
        named = {
            str(one) for run in group.runs for one in run.config.get("borrowed") or ()
            if (key := f"algorithm.{str(one).rpartition(':')[2]}") in apart
            or not isinstance(group.config.get(key), bool)
        }  # fmt: skip
        for other in sorted({one.rpartition(":")[0] for one in named}):
            keys = sorted(key for one, _, key in (n.rpartition(":") for n in named) if one == other)
            found.setdefault((", ".join(keys), other), []).append(group.name)
    return [
        f"{', '.join(names)} ran with {keys} that the recipe had chosen for {other}."
        for (keys, other), names in found.items()
    ]


def resumed_for_more(groups: Sequence[Group]) -> list[str]:
    """A run that got more rounds later is not always the one that has them from the start."""
    return [
        f"{run.path.name} was begun for {begun} rounds and resumed for more, up to "
        f"{run.config.get('rounds', '?')}: what a method computes from its number of rounds (the "
        "first batch of FedSVRPG-M, schedules of step sizes) was of the smaller one until then."
        for group in groups
        for run in group.runs
        if isinstance(begun := run.meta.get(BEGUN_FOR), int)
    ]
