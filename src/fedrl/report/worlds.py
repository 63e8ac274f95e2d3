"""Which groups of runs may be compared: those of one world, whose returns have one scale.

A return of CartPole and one of Acrobot have nothing to do with each other, so neither a difference
nor a winner is taken between them. What makes clients differ (a spread, κ, keywords of an
environment, a partition) leaves the scale as it is: such runs stay comparable. But where several
methods were run at several levels of it, the question is which method is better at each level, and
whether that changes from level to level: then methods are compared within a level.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from fedrl.core.registry import label
from fedrl.report.run_groups import Group
from fedrl.report.run_labels import (
    OF_CLIENTS,
    Config,
    differing,
    group_names,
    setting_text,
    without_world,
)

NAMES = ("world.name", "world.id", "world.environment")
"""Keys whose values need no `key=` in a world's name."""
SCALE = (
    *NAMES, "world.url", "world.serve", "world.source", "world.size", "world.reward",
    "world.weights", "world.wrappers", "world.horizon", "world.states", "world.actions",
)  # fmt: skip
"""Settings of worlds that say what is played, and what a return is the sum of."""
METHODS = ("algorithm.name", "aggregate.name", "federation.kind")
OF_METHODS = ("algorithm.", "aggregate.")
ALSO_OF_METHODS = ("federation.kind", "federation.client")
"""Settings that belong to a method: learning alone is one, too."""
DISCOUNTED = "random_mdp"
"""Its returns are exact values, which the discount scales; the others' are plain sums."""


def scale(config: Config) -> Config:
    """What decides about the scale of a return."""
    keys = (*SCALE, "world.gamma") if config.get("world.name") == DISCOUNTED else SCALE
    return {key: config[key] for key in keys if key in config}


def by_world(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups that may be compared, by what tells their world, and the level at which their clients
    differ, from the others; "" where all may."""
    scales = [scale(group.config) for group in groups]
    keys = differing(scales)
    worlds: dict[str, list[Group]] = {}
    for group, one in zip(groups, scales, strict=True):
        worlds.setdefault(_name(one, keys), []).append(group)
    return {
        " ".join(filter(None, (world, level))): same
        for world, whole in worlds.items()
        for level, same in by_level(whole).items()
    }


def by_level(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups of one world by how their clients differ, where that was varied with the method: two
    levels at least have the same two methods. Else all of them, as ""."""
    keys = level_keys(groups)
    levels: dict[str, list[Group]] = {}
    for group in groups:
        levels.setdefault(_name(group.config, keys), []).append(group)
    crossed = any(
        _crossed(levels.values(), told) for told in (METHODS.__contains__, is_of_a_method)
    )
    return levels if crossed else {"": list(groups)}


def is_of_a_method(key: str) -> bool:
    return key.startswith(OF_METHODS) or key in ALSO_OF_METHODS


def _crossed(levels: Collection[Sequence[Group]], told: Callable[[str], bool]) -> bool:
    """Whether two levels have the same two methods, told apart by these of their settings: their
    names, since each may be tuned for its level; or all, since one may stand there in two ways."""
    methods = [
        {str(sorted(pair for pair in one.config.items() if told(pair[0]))) for one in same}
        for same in levels
    ]
    return any(len(one & two) > 1 for one, two in itertools.combinations(methods, 2))


def level_keys(groups: Sequence[Group]) -> list[str]:
    """What differs between groups of one world in how unlike each other their clients are."""
    keys = differing([group.config for group in groups])
    return [key for key in keys if key.startswith(OF_CLIENTS)]


def methods(groups: Sequence[Group]) -> dict[str, str]:
    """By a group's name, what its method is called in all worlds and at all levels: the key of its
    colour. Where groups are of one world and level, or are not told apart without it, their own."""
    worlds = by_world(groups)
    own = {group.name: group.name for group in groups}
    if len(worlds) < 2:
        return own
    kinds = {group.name: str([group.config.get(key) for key in METHODS]) for group in groups}
    often = Counter((world, kinds[one.name]) for world, same in worlds.items() for one in same)
    several = {kind for (_, kind), times in often.items() if times > 1}
    configs: dict[str, Config] = {}
    keys: dict[str, str] = {}
    for group in groups:
        config = without_world(group.config)
        kind = kinds[group.name]  # what stands once at every level may be tuned for each
        keys[group.name] = str(sorted(config.items())) if kind in several else kind
        configs.setdefault(keys[group.name], config)
    names = dict(zip(configs, group_names([*configs.values()]), strict=True))
    found = {name: names[key] for name, key in keys.items()}
    once = all(len({found[one.name] for one in same}) == len(same) for same in worlds.values())
    return found if once else own


def level_of(groups: Sequence[Group]) -> dict[str, str]:
    """By a group's name, its world and level as `by_world` calls them."""
    return {one.name: world for world, same in by_world(groups).items() for one in same}


def _name(config: Config, keys: Sequence[str]) -> str:
    words = []
    for key in keys:
        if key in config:
            value = config[key]
            text = value if isinstance(value, str) else setting_text(value)
            words.append(label(text) if key in NAMES else f"{key.rpartition('.')[2]}={text}")
    return " ".join(words)


def one_world(groups: Sequence[Group]) -> bool:
    return not differing([scale(group.config) for group in groups])


def not_compared(worlds: Mapping[str, Sequence[Group]], metric: str) -> str:
    """A line that says so."""
    if not one_world([group for same in worlds.values() for group in same]):
        return f"{metric} of different worlds is not compared: {', '.join(worlds)}"
    return f"methods are compared within a level: {', '.join(worlds)}"
