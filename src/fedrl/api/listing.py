"""`fedrl.catalogue`: all that recipes can name, the recipes and the sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedrl.aggregation.rules import AGGREGATORS
from fedrl.algorithms import METHODS
from fedrl.clients.attacks import ATTACKS
from fedrl.config.loading import recipes_folder
from fedrl.core.registry import Entry
from fedrl.envs import WORLDS
from fedrl.envs.prompts.rewards import REWARDS


class Catalogue(NamedTuple):
    """By name: entries, and the first line of recipes and sweeps."""

    methods: Mapping[str, Entry]
    worlds: Mapping[str, Entry]
    rules: Mapping[str, Entry]
    attacks: Mapping[str, Entry]
    rewards: Mapping[str, Entry]
    recipes: Mapping[str, str]
    sweeps: Mapping[str, str]


def catalogue() -> Catalogue:
    """What is installed, also by other packages."""
    from fedrl.runs.sweep import sweeps

    folder = recipes_folder()
    recipes = {
        str(path.relative_to(folder).with_suffix("")): _first_line(path)
        for path in sorted(folder.glob("*/*.toml"))
    }
    lines = {name: _first_line(path) for name, path in sweeps().items()}
    return Catalogue(METHODS, WORLDS, AGGREGATORS, ATTACKS, REWARDS, recipes, lines)


def _first_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
