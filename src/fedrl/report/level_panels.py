"""Final values and means over rounds against how unlike the clients are, a line per method: where
several methods were run at several levels of one setting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrl.core.number_format import is_share, label
from fedrl.report.differences import Values, by_seed, final
from fedrl.report.panels import highest, method_styles, possible
from fedrl.report.plots import Panel
from fedrl.report.run_groups import Group, over_rounds
from fedrl.report.worlds import by_level, level_keys, methods, one_world

DRAWN: dict[str, Values] = {"final {}": final, "{}, mean over rounds": over_rounds}


def level_panels(groups: Sequence[Group], metric: str) -> list[Panel]:
    """Two where the groups are of one world and their levels are numbers of a single setting."""
    keys = level_keys(groups) if one_world(groups) else []
    if len(keys) != 1 or len(by_level(groups)) < 2:
        return []
    (key,) = keys
    if not all(isinstance(group.config.get(key), int | float) for group in groups):
        return []
    found = [_panel(groups, metric, key, title, value) for title, value in DRAWN.items()]
    return [one for one in found if one.lines]


def _panel(groups: Sequence[Group], metric: str, key: str, title: str, value: Values) -> Panel:
    names, looks = methods(groups), method_styles(groups)
    by_method: dict[str, list[Group]] = {}
    for group in sorted(groups, key=lambda group: float(str(group.config[key]))):
        by_method.setdefault(names[group.name], []).append(group)
    x, lines = {}, {}
    for name in looks:
        same = by_method[name]
        values = [by_seed(group, metric, value) for group in same]
        seeds = sorted(set.intersection(*map(set, values)))
        if seeds:
            x[name] = np.array([float(str(group.config[key])) for group in same])
            lines[name] = np.array([[one[seed] for one in values] for seed in seeds])
    return Panel(
        title=title.format(label(metric)),
        x_label=key.rpartition(".")[2],
        x=x,
        lines=lines,
        share=is_share(metric),
        possible=possible(metric, lines.values(), highest(groups, metric)),
        styles=looks,
        points=True,
    )


def at_the_highest(groups: Sequence[Group], metric: str) -> str:
    """A line about groups all of whose seeds end there: nothing above could be seen of them."""
    most = highest(groups, metric)
    full = [group.name for group in groups if {*by_seed(group, metric, final).values()} == {most}]
    if not full:
        return ""
    text = "100%" if is_share(metric) else f"{most:g}, the horizon"
    return (
        f"All seeds of {', '.join(full)} end at the most that there is ({text}): final values "
        "cannot say how good that is; the mean over rounds still tells."
    )
