"""Whether groups of runs differ: seed by seed, with intervals, and no winner where these overlap 0.

Two groups that have the same seeds began with the same numbers and data, so the difference is taken
within each seed: what a seed makes easy or hard for both is then no part of it. Beside the mean and
its t interval stands the interquartile mean with the bootstrap's (`core.iqm`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedrl.core.intervals import interval
from fedrl.core.iqm import FEWEST, bootstrap_interval, iqm
from fedrl.core.number_format import is_share, plus_minus
from fedrl.report.run_groups import Group, curve
from fedrl.report.run_labels import differing
from fedrl.report.tables import Table

MOST_PAIRS = 15
OF_A_METHOD = ("algorithm.", "aggregate.")
ALSO_OF_A_METHOD = ("name", "packages", "federation.kind", "federation.client")
"""Settings that belong to a method: learning alone is one, too."""


class Difference(NamedTuple):
    """`first` less `second`, in the seeds that both have [n]."""

    first: str
    second: str
    values: np.ndarray

    @property
    def decided(self) -> bool:
        """Whether the t interval of the mean leaves 0 out."""
        mean, half = interval(self.values)
        return bool(abs(mean) > half)


def finals(group: Group, metric: str) -> dict[int, float]:
    """The last value of every seed, in the last round that all of the group have."""
    found: dict[int, float] = {}
    having = [run for run in group.runs if any(metric in one for one in run.rounds.values())]
    values = curve(group.runs, metric)[1]
    for run, row in zip(having, values, strict=False):
        found[int(run.config.get("seed", 0))] = float(row[-1])
    return found


def difference(first: Group, second: Group, metric: str) -> Difference | None:
    """None where they share fewer than two seeds."""
    one, other = finals(first, metric), finals(second, metric)
    seeds = sorted(one.keys() & other.keys())
    if len(seeds) < 2:
        return None
    values = np.array([one[seed] - other[seed] for seed in seeds])
    return Difference(first.name, second.name, values)


def differences(groups: Sequence[Group], metric: str) -> list[Difference]:
    """Of every two groups, the better mean first."""
    means = {group.name: float(np.mean([*finals(group, metric).values()] or [-np.inf]))
             for group in groups}  # fmt: skip
    ordered = sorted(groups, key=lambda group: -means[group.name])
    pairs = itertools.combinations(ordered, 2)
    return [found for pair in pairs if (found := difference(*pair, metric)) is not None]


def table(groups: Sequence[Group], metric: str) -> Table | None:
    """A row per pair; None where there is nothing to pair."""
    share = is_share(metric)
    rows = [_row(one, share) for one in differences(groups, metric)[:MOST_PAIRS]]
    head = ["difference", "seeds", "mean", "IQM", "95% by bootstrap", "told apart"]
    return Table(head, rows) if rows else None


def _row(one: Difference, share: bool) -> list[str]:
    scale = 100 if share else 1
    mean, half = interval(one.values * scale)
    count = len(one.values)
    middle, between = "–", "–"
    if count >= FEWEST:
        low, high = bootstrap_interval(one.values * scale)
        middle = f"{float(iqm(one.values * scale)):.3g}"
        between = f"{low:.3g} to {high:.3g}"
    told = "yes" if one.decided else "no: 0 is within the interval"
    return [
        f"{one.first} − {one.second}", str(count), plus_minus(float(mean), float(half), share),
        middle, between, told,
    ]  # fmt: skip


def winner(groups: Sequence[Group], metric: str) -> str:
    """The group that is told apart from every other one, or none."""
    found = differences(groups, metric)
    if not found:
        return ""
    first = found[0].first
    against = [one for one in found if one.first == first]
    alone = len(against) == len(groups) - 1 and all(one.decided for one in against)
    return first if alone else ""


def iqm_text(samples: np.ndarray, metric: str) -> str:
    """An interquartile mean over seeds with its interval; of few seeds there is none."""
    if len(samples) < FEWEST:
        return "–"
    share = is_share(metric)
    scaled = samples * 100 if share else samples
    low, high = bootstrap_interval(scaled)
    return f"{float(iqm(scaled)):.3g} ({low:.3g} to {high:.3g}){'%' if share else ''}"


def more_than_the_method(groups: Sequence[Group]) -> list[str]:
    """A warning, where methods are compared and something else differs as well."""
    keys = differing([group.config for group in groups])
    if not any(key in ("algorithm.name", "federation.kind") for key in keys):
        return []
    others = [
        key for key in keys if not key.startswith(OF_A_METHOD) and key not in ALSO_OF_A_METHOD
    ]
    if not others:
        return []
    return [f"These runs differ in more than the method: {', '.join(others)}. What differs in the "
            "results may come from that."]  # fmt: skip
