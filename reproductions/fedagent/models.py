"""What FedAgent's runs start from: a warm-started model per world, and labels of its successes.

Both are made once and kept under a hash of how they are made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.core.registry import load, look_up
from fedrl.envs import WORLDS
from fedrl.runs import agents
from fedrl.runs.grid import digest, short_hash
from fedrl.runs.warmstart import Settings, warmstart


@dataclass(frozen=True)
class WarmStart:
    """A world, as in a recipe, and how its expert is imitated."""

    world: Mapping[str, Any]
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


def make(start: WarmStart, path: Path) -> None:
    """Imitate the expert."""
    entry = look_up(WORLDS, "world.name", start.name)
    module = load(entry, "world.name", start.name)
    settings = resolve({"world": dict(start.world)}).world
    warmstart(module.World(settings, 0, 0), start.settings, path, Console(quiet=True))


def labels_path(recipe: Mapping[str, Any], folder: Path) -> Path:
    """Labels are of a model and a world, whatever else the recipe says."""
    config = resolve({k: recipe[k] for k in ("federation", "algorithm", "world")})
    return folder / "models" / f"labels.{digest(config)}.json"


def label(config: Config, path: Path) -> None:
    """Play every training task once with the model that the runs start from."""
    algorithm: Any = build_algorithm(config)
    half = path.with_name(f".{path.name}.part")
    agents.write_successes(algorithm, algorithm.init(0), half, seed=0)
    half.rename(path)
