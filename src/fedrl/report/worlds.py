"""Which groups of runs may be compared: those of one world, whose returns have one scale.

A return of CartPole and one of Acrobot have nothing to do with each other, so neither a difference
nor a winner is taken between them. What makes clients differ (a spread, κ, keywords of an
environment) leaves the scale as it is: such runs stay comparable.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.core.registry import label
from fedrl.report.run_groups import Group
from fedrl.report.run_labels import Config, differing, setting_text

NAMES = ("world.name", "world.id", "world.environment")
"""Keys whose values need no `key=` in a world's name."""
SCALE = (
    *NAMES, "world.url", "world.serve", "world.source", "world.size", "world.reward",
    "world.weights", "world.wrappers", "world.horizon", "world.states", "world.actions",
)  # fmt: skip
"""Settings of worlds that say what is played, and what a return is the sum of."""
DISCOUNTED = "random_mdp"
"""Its returns are exact values, which the discount scales; the others' are plain sums."""


def scale(config: Config) -> Config:
    """What decides about the scale of a return."""
    keys = (*SCALE, "world.gamma") if config.get("world.name") == DISCOUNTED else SCALE
    return {key: config[key] for key in keys if key in config}


def by_world(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups that may be compared, by what tells their world from the others; "" where all may."""
    scales = [scale(group.config) for group in groups]
    keys = differing(scales)
    found: dict[str, list[Group]] = {}
    for group, one in zip(groups, scales, strict=True):
        found.setdefault(_name(one, keys), []).append(group)
    return found


def _name(scale: Config, keys: Sequence[str]) -> str:
    words = []
    for key in keys:
        if key in scale:
            value = scale[key]
            text = value if isinstance(value, str) else setting_text(value)
            words.append(label(text) if key in NAMES else f"{key.rpartition('.')[2]}={text}")
    return " ".join(words)


def not_compared(worlds: Sequence[str], metric: str) -> str:
    """A line that says so."""
    return f"{metric} of different worlds is not compared: {', '.join(worlds)}"
