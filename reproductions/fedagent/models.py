"""Labels of a warm-started model's successes, made once and kept under a hash of how.

`WarmStart` and `make` are those of all reproductions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.runs import agents
from fedrl.runs.grid import digest
from reproductions.warm_starts import WarmStart, make

__all__ = ["WarmStart", "label", "labels_path", "make"]


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
