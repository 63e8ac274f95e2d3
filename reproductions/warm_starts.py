"""What language agents' runs start from: a model that has seen a world's expert play.

It is made once and kept under a hash of how it is made.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedrl.api import warm_start
from fedrl.core.types import Tables
from fedrl.runs.grid import short_hash
from fedrl.runs.warmstart import Settings
from reproductions.runner import Need


@dataclass(frozen=True)
class WarmStart:
    """A world, as in a recipe, and how its expert is imitated."""

    world: Tables
    settings: Settings

    @property
    def name(self) -> str:
        return str(self.world["name"])

    def path(self, folder: Path) -> Path:
        """The model's folder; its hash knows the model it starts from by its last name.

        Like a run's, it is of what differs from the defaults.
        """
        usual = dataclasses.asdict(Settings())
        said = {k: v for k, v in dataclasses.asdict(self.settings).items() if v != usual[k]}
        said["model"] = Path(self.settings.model).name
        return folder / "models" / f"{self.name}.{short_hash([dict(self.world), said])}"


def need(start: WarmStart, folder: Path) -> Need:
    """The model, for runs that start from it."""
    path = start.path(folder)
    return Need(f"warm start of {start.name}", path.is_dir, partial(make, start, path))


def make(start: WarmStart, path: Path) -> None:
    """Imitate the expert."""
    warm_start(start.world, path, progress=False, **dataclasses.asdict(start.settings))
