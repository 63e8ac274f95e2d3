"""What runs on reviews start from where no model is named: one that has read public reviews.

It is made once and kept under a hash of how it is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrl.config.loading import resolve
from fedrl.runs.grid import short_hash
from fedrl.runs.warmstart_reviews import Settings, warmstart

PUBLIC = ("source", "shortest", "public", "family")
"""What of a world's settings decides which reviews are public."""


@dataclass(frozen=True)
class Reading:
    """A world of reviews, as in a recipe, and how its public ones are read."""

    world: Mapping[str, Any]
    settings: Settings

    def path(self, folder: Path) -> Path:
        """The model's folder; its hash is of what differs from the defaults."""
        usual = dataclasses.asdict(Settings())
        said = {k: v for k, v in dataclasses.asdict(self.settings).items() if v != usual[k]}
        world = {key: self.world[key] for key in PUBLIC if key in self.world}
        return folder / "models" / f"reviews.{short_hash([world, said])}"


def make(reading: Reading, path: Path) -> None:
    from fedrl.envs.imdb.world import World

    settings = resolve({"world": dict(reading.world)}).world
    warmstart(World(settings, 0, 0), reading.settings, path, Console(quiet=True))
