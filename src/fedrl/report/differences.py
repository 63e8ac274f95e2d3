"""Whether groups of runs differ: seed by seed, with intervals, and no winner where these overlap 0.

Two groups that have the same seeds began with the same numbers and data, so the difference is taken
within each seed: what a seed makes easy or hard for both is then no part of it. Beside the mean and
its t interval stands the interquartile mean with the bootstrap's (`core.iqm`). Compared are final
values, and means over the rounds: how well it went on the way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.core.intervals import interval
from fedrl.core.iqm import FEWEST, bootstrap_interval, iqm
from fedrl.core.number_format import is_share
from fedrl.report.run_groups import Group, common_rounds, curve, no_result, over_rounds
from fedrl.report.tables import Table
from fedrl.report.worlds import by_world
from fedrl.runs.read import Run

MOST_PAIRS = 15
FEWEST_ALIKE = 3
"""Seeds whose differences are all the same say something from this number on."""
ROUNDING = 1e-9


class Difference(NamedTuple):
    """`first` less `second`, in the seeds that both have [n]."""

    first: str
    second: str
    values: np.ndarray
    round: int  # the last that all of these runs have

    @property
    def decided(self) -> bool:
        """Whether the t interval of the mean leaves 0 out. Two seeds that differ alike to the last
        digit (of some tasks as many more were solved) do so by chance, and their interval has no
        width: nothing follows."""
        mean, half = interval(self.values)
        return bool(abs(mean) > half) and not self.alike

    @property
    def alike(self) -> bool:
        return len(self.values) < FEWEST_ALIKE and bool(np.ptp(self.values) <= ROUNDING)

    @property
    def better(self) -> bool:
        """Whether all of the interval is above 0."""
        return self.decided and float(np.mean(self.values)) > 0


Values = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Of rounds [n] and a metric [seeds, n], a value of every seed."""


def final(rounds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """In the last round that all seeds of the group have."""
    return values[:, -1]


def with_result(group: Group, metric: str) -> list[Run]:
    """Its runs that have a result: beside seeds that are finished, no others count."""
    runs = [run for run in group.runs if not no_result(run)]
    finished = [run for run in runs if run.status == "finished"]
    return common_rounds(finished or runs, metric)[0]


def seed_of(run: Run) -> int:
    return int(run.config.get("seed", 0))


def by_seed(group: Group, metric: str, value: Values = final) -> dict[int, float]:
    """Of the runs that have a result."""
    runs = with_result(group, metric)
    rounds, values = curve(runs, metric)
    if not values.size:
        return {}
    return dict(zip(map(seed_of, runs), value(rounds, values).tolist(), strict=True))


def difference(
    first: Group, second: Group, metric: str, value: Values = final
) -> Difference | None:
    """In the rounds that all these runs have, so that no seed of a group that ended early stands
    for its end; None where they share fewer than two seeds, or no round."""
    one, other = ({seed_of(run): run for run in with_result(group, metric)}
                  for group in (first, second))  # fmt: skip
    seeds = sorted(one.keys() & other.keys())
    if len(seeds) < 2:
        return None
    rounds, values = curve([*(one[s] for s in seeds), *(other[s] for s in seeds)], metric)
    if not values.size:
        return None
    each = value(rounds, values)
    apart = each[: len(seeds)] - each[len(seeds) :]
    return Difference(first.name, second.name, apart, int(rounds[-1]))


def differences(groups: Sequence[Group], metric: str, value: Values = final) -> list[Difference]:
    """Of every two groups of one world, the better mean first."""
    pairs = (
        pair
        for same in by_world(groups).values()
        for pair in itertools.combinations(best_first(same, metric, value), 2)
    )
    return [found for pair in pairs if (found := difference(*pair, metric, value)) is not None]


def best_first(groups: Sequence[Group], metric: str, value: Values = final) -> list[Group]:
    """By their means; one that has none, or has diverged, is last."""

    def mean(group: Group) -> float:
        found = float(np.mean([*by_seed(group, metric, value).values()] or [-np.inf]))
        return -np.inf if math.isnan(found) else found

    return sorted(groups, key=mean, reverse=True)


def table(groups: Sequence[Group], metric: str, value: Values = final) -> Table | None:
    """A row per pair; None where there is nothing to pair."""
    share = is_share(metric)
    rows = [_row(one, share) for one in differences(groups, metric, value)[:MOST_PAIRS]]
    head = ["difference", "seeds", "mean", "95% by t", "IQM", "95% by bootstrap", "told apart"]
    return Table(head, rows) if rows else None


def _row(one: Difference, share: bool) -> list[str]:
    """Ends of intervals and no half widths: rounded, 10.83 ± 10.77 would seem to reach 0."""
    scale = 100 if share else 1
    mean, half = map(float, interval(one.values * scale))
    count = len(one.values)
    middle, between = "–", "–"
    if count >= FEWEST:
        middle = f"{float(iqm(one.values * scale)):.3g}"
        between = _between(*bootstrap_interval(one.values * scale), share)
    told = "yes" if one.decided else "no: 0 is within the interval"
    if one.alike and not one.decided:
        told = "no: two seeds that differ alike say nothing of others"
    return [
        f"{one.first} − {one.second}", str(count), f"{mean:.3g}{'%' if share else ''}",
        _between(mean - half, mean + half, share), middle, between, told,
    ]  # fmt: skip


def _between(low: float, high: float, share: bool = False) -> str:
    return f"{low:.3g} to {high:.3g}{'%' if share else ''}"


def repeated(groups: Sequence[Group], metric: str) -> list[Group]:
    """Those with two seeds or more: of one alone nothing is known of how far others would lie."""
    return [one for one in groups if len(by_seed(one, metric)) > 1]


def once(groups: Sequence[Group], metric: str) -> list[str]:
    """Beside groups that can be compared, those with one seed, which cannot."""
    if not repeated(groups, metric):
        return []
    return [one.name for one in groups if len(by_seed(one, metric)) == 1]


def one_seed_each(groups: Sequence[Group], metric: str) -> bool:
    """Whether several groups have a single seed each: without an interval nothing follows."""
    seeds = [len(by_seed(one, metric)) for one in groups]
    return sum(map(bool, seeds)) > 1 and max(seeds) == 1


def rivals(groups: Sequence[Group], metric: str, value: Values = final) -> list[str]:
    """The groups that the best by its mean is not told apart from: none if it wins."""
    ordered = best_first(repeated(groups, metric), metric, value)
    found = [(other.name, difference(ordered[0], other, metric, value)) for other in ordered[1:]]
    return [name for name, one in found if one is None or not one.better]


def ahead(groups: Sequence[Group], metric: str, value: Values = final) -> list[str]:
    """Of the rivals those that are better than the best where both have been: it ends later."""
    ordered = best_first(repeated(groups, metric), metric, value)
    found = [(other.name, difference(ordered[0], other, metric, value)) for other in ordered[1:]]
    return [name for name, one in found if one is not None and one.decided and not one.better]


def winner(groups: Sequence[Group], metric: str, value: Values = final) -> str:
    """The group that is told apart from every other one that can be compared, or none."""
    having = repeated(groups, metric)
    if len(having) < 2 or rivals(having, metric, value):
        return ""
    return best_first(having, metric, value)[0].name


def in_words(groups: Sequence[Group], metric: str, value: Values = final) -> str:
    """The difference that decides, with its 95% interval: the best's smallest, over a group that it
    is not told apart from where there is one, or over the best of one that is ahead of it; and its
    round, if groups end in several."""
    ordered = best_first(repeated(groups, metric), metric, value)
    front = ahead(groups, metric, value)
    near = front or rivals(groups, metric, value)
    asked = [one for one in ordered[1:] if not near or one.name in near]
    pairs = (difference(ordered[0], other, metric, value) for other in asked)
    known = [one for one in pairs if one is not None]
    if not known:
        return ""
    nearest = min(known, key=lambda one: float(np.mean(one.values)))
    scale, share = (100, True) if is_share(metric) else (1, False)
    mean, half = map(float, interval(nearest.values * (-scale if front else scale)))
    said = f"{mean:+.3g}{'%' if share else ''} ({_between(mean - half, mean + half, share)}) "
    said += f"over {nearest.first if front else nearest.second}"
    ends = {int(curve(with_result(one, metric), metric)[0][-1]) for one in ordered}
    return f"{said} at round {nearest.round}" if len(ends) > 1 else said


def means_say(groups: Sequence[Group], metric: str) -> str:
    """What means over rounds say beside the final values, which may be another thing."""
    having = repeated(groups, metric)
    if len(having) < 2:
        return ""
    best = best_first(having, metric, over_rounds)[0].name
    by_how_much = in_words(having, metric, over_rounds)
    if front := ahead(having, metric, over_rounds):
        return (
            f"by the mean over the rounds where both have been {', '.join(front)} is better: "
            f"{by_how_much}"
        )
    if near := rivals(having, metric, over_rounds):
        told = not_told_apart(near, len(having))
        return f"by the mean over rounds {best} is {told}" + f": {by_how_much}" * bool(by_how_much)
    too = ", too" if best == winner(having, metric) else ""
    return f"best by the mean over rounds{too}: {best}, {by_how_much}"


def not_told_apart(near: Sequence[str], count: int) -> str:
    """From whom the best of so many is not, and from how many it is."""
    others = count - 1 - len(near)
    from_others = f" (from {others} other{'s' if others > 1 else ''} it is)" if others else ""
    return f"not told apart from {', '.join(near)}{from_others}"


def iqm_text(samples: np.ndarray, metric: str) -> str:
    """An interquartile mean over seeds with its interval; of few seeds there is none."""
    if len(samples) < FEWEST:
        return "–"
    share = is_share(metric)
    scaled = samples * 100 if share else samples
    return f"{float(iqm(scaled)):.3g} ({_between(*bootstrap_interval(scaled), share)})"
