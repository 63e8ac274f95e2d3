"""Which curves a page shows: metrics of groups of runs as panels for `plots` to draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedrl.core.number_format import is_share, label
from fedrl.report.method_colours import styles_of
from fedrl.report.plots import Panel
from fedrl.report.run_groups import (
    Against,
    Group,
    bytes_sent,
    curve,
    drawn_metrics,
    env_steps,
    episodes_played,
    trains_agents,
)
from fedrl.report.worlds import by_world, methods

SHARES = {
    "accuracy", "train_accuracy", "held_out", "invalid", "truncated", "no_act", "no_think",
    "ratio_far", "zero_advantage", "weight_clipped", "own_success",
}  # fmt: skip
NEVER_NEGATIVE = (
    "_var", "_norm", "_norm_sq", "_error", "entropy", "steps", "tokens", "weight_mean",
)  # fmt: skip
OVER_MAGNITUDES = ("grad_norm", "q_error", "direction_error")
"""What falls by orders of magnitude where learning goes well: on a linear axis all ends are one."""
MOST_POINTS = 600
"""Points of a drawn curve: more than a panel has pixels only makes the page heavy."""


def panel(
    groups: Sequence[Group],
    metric: str,
    x_label: str = "round",
    against: Against | None = None,
    world: str = "",
    styles: Mapping[str, int] | None = None,
    names: Mapping[str, str] | None = None,
) -> Panel:
    """Of groups of one world, which is named where a page has several; by group's name, `names` has
    what its line is called; `styles` by line."""
    x, lines = {}, {}
    for group in groups:
        at, values = curve(group.runs, metric, against)
        keep = np.unique(np.linspace(0, len(at) - 1, min(len(at), MOST_POINTS)).astype(int))
        if against is not None and at.size and not at.any():
            at, keep, values = at[:0], keep[:0], values[:0]  # nothing to set the metric against
        name = (names or {}).get(group.name, group.name)
        x[name], lines[name] = at[keep], values[:, keep]
    positive = all((values > 0).all() for values in lines.values())
    return Panel(
        title=f"{label(metric)}, {world}" if world else label(metric),
        x_label=x_label,
        x=x,
        lines=lines,
        x_unit="B" if against is bytes_sent else "",
        log=positive and any(word in metric for word in OVER_MAGNITUDES),
        share=is_share(metric),
        possible=possible(metric, lines.values(), highest(groups, metric)),
        start=warm_start(groups, metric),
        styles=styles or {},
    )


def possible(metric: str, lines: Iterable[np.ndarray], most: float = np.inf) -> tuple[float, float]:
    """What no band leaves: the bounds that a metric has by its meaning, if its values keep them (a
    method of one's own may call something else by the name); of a return `most`."""
    name = metric.partition("/")[2]
    low = high = np.inf
    if name in SHARES or is_share(metric):
        low, high = 0.0, 1.0
    elif name == "spearman":
        low, high = -1.0, 1.0
    elif name.endswith(NEVER_NEGATIVE):
        low = 0.0
    if low == np.inf or any((v < low).any() or (v > high).any() for v in lines):
        return -np.inf, most
    return low, high


def highest(groups: Sequence[Group], metric: str) -> float:
    """The most that an episode can bring, where these runs show it: some stand at the horizon of
    their world, or at a share of 1, and none is above."""
    horizons = {group.config.get("world.horizon") for group in groups}
    known = 1.0 if is_share(metric) else horizons.pop() if len(horizons) == 1 else None
    if not isinstance(known, int | float) or not (is_share(metric) or "return" in metric):
        return np.inf
    values = [curve(group.runs, metric)[1] for group in groups]
    return float(known) if max(one.max(initial=-np.inf) for one in values) == known else np.inf


def warm_start(groups: Sequence[Group], metric: str) -> float | None:
    """What the first model of language agents can do, which all their runs begin with."""
    agents = all(trains_agents(group.config) for group in groups)
    if not agents or not metric.startswith("eval/success"):
        return None
    models = {group.config.get("algorithm.model") for group in groups}
    firsts = [run.rounds[0][metric] for group in groups for run in group.runs
              if metric in run.rounds.get(0, {})]  # fmt: skip
    return float(np.mean(firsts)) if firsts and len(models) == 1 else None


def main_panels(groups: Sequence[Group], metric: str) -> list[Panel]:
    """The main metric against rounds, episodes or steps, and bytes: what the runs have of these."""
    panels = panels_by_world(groups, metric)
    rounds = [metrics for g in groups for run in g.runs for metrics in run.rounds.values()]
    played = ("episodes played", episodes_played)
    steps = ("environment steps", env_steps)
    for x_label, against in (
        played if any(map(episodes_played, rounds)) else steps,
        ("sent, both directions", bytes_sent),
    ):
        if any(map(against, rounds)):
            panels += panels_by_world(groups, metric, x_label, against)
    return panels


def other_panels(groups: Sequence[Group], main: str) -> dict[str, list[Panel]]:
    """Every other metric that was logged and is not zero throughout, against rounds."""
    names = [name for name in drawn_metrics(groups) if name != main]
    # Not by the records of failures: a run's last round, if it broke, has these and no metrics.
    if any(list(run.rounds.values())[-1]["cohort/failed_so_far"] for g in groups for run in g.runs):
        names.append("cohort/failed_so_far")
    panels = {}
    for name in names:
        found = panels_by_world(groups, name)
        lines = [values for one in found for values in one.lines.values()]
        switched_off = name.startswith("train/") and not any(values.any() for values in lines)
        if found and not switched_off:
            panels[name] = found
    return panels


def method_styles(groups: Sequence[Group]) -> dict[str, int]:
    """By a method's name in `methods`, how its lines look: its own colour, whatever stands beside
    it, and the same at all levels."""
    names = methods(groups)
    return styles_of({names[group.name]: _federated_method(group) for group in groups})


def group_styles(groups: Sequence[Group]) -> dict[str, int]:
    """By a group's name, how its method's lines look."""
    looks = method_styles(groups)
    return {name: looks[method] for name, method in methods(groups).items()}


def _federated_method(group: Group) -> str:
    """Empty of baselines: these go by their federation's name."""
    federated = group.config.get("federation.kind", "federated") == "federated"
    return str(group.config.get("algorithm.name", "")) if federated else ""


def panels_by_world(
    groups: Sequence[Group], metric: str, x_label: str = "round", against: Against | None = None
) -> list[Panel]:
    """One for each world that has the metric: what differs in scale shares no axis."""
    styles, names = method_styles(groups), methods(groups)
    found = [
        panel(same, metric, x_label, against, world, styles, names)
        for world, same in by_world(groups).items()
    ]
    return [one for one in found if any(values.size for values in one.lines.values())]
