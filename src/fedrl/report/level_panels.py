"""Final values against how unlike the clients are, a line per method: where several methods were
run at several levels of one setting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrl.core.number_format import is_share, label
from fedrl.report.differences import by_seed
from fedrl.report.method_colours import styles_of
from fedrl.report.panels import possible
from fedrl.report.plots import Panel
from fedrl.report.run_groups import Group
from fedrl.report.run_labels import Config, group_names
from fedrl.report.worlds import by_level, level_keys, one_world


def level_panels(groups: Sequence[Group], metric: str) -> list[Panel]:
    """One where the groups are of one world and their levels are numbers of a single setting."""
    keys = level_keys(groups) if one_world(groups) else []
    if len(keys) != 1 or len(by_level(groups)) < 2:
        return []
    (key,) = keys
    if not all(isinstance(group.config.get(key), int | float) for group in groups):
        return []
    methods = _by_method(groups, key)
    x, lines = {}, {}
    for name, same in methods.items():
        finals = [by_seed(group, metric) for group in same]
        seeds = sorted(set.intersection(*map(set, finals)))
        if seeds:
            x[name] = np.array([float(str(group.config[key])) for group in same])
            lines[name] = np.array([[one[seed] for one in finals] for seed in seeds])
    title, share = f"final {label(metric)}", is_share(metric)
    named = {name: str(same[0].config["algorithm.name"]) for name, same in methods.items()}
    bounds = possible(metric, lines.values())
    found = Panel(title, key.rpartition(".")[2], x, lines, share=share, possible=bounds,
                  styles=styles_of(named))  # fmt: skip
    return [found] if lines else []


def _by_method(groups: Sequence[Group], key: str) -> dict[str, list[Group]]:
    """By name, a method's groups from the lowest level on: those that differ in nothing else."""
    others: list[Config] = [
        {name: value for name, value in group.config.items() if name not in (key, "name")}
        for group in groups
    ]
    apart: list[Config] = []
    for one in others:
        if one not in apart:
            apart.append(one)
    names = group_names(apart)
    found: dict[str, list[Group]] = {name: [] for name in names}
    for group, one in zip(groups, others, strict=True):
        found[names[apart.index(one)]].append(group)
    for same in found.values():
        same.sort(key=lambda group: float(str(group.config[key])))
    return found
