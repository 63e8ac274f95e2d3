"""What FedAgent's runs find when they begin: a warm-started model, and labels of what it solves.

Both are made once and kept under a hash of how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.runs import agents
from fedrl.runs.grid import digest
from fedrl.runs.warmstart import Settings as Imitation
from reproductions.grid import Cell, Grid, Tables, changed, read_grid
from reproductions.runner import Need, Task, tasks_of
from reproductions.study import Study
from reproductions.warm_starts import WarmStart, make

BEFORE = "rebuilt, union of shares"
"""The mark of records that were made before moments could be kept."""


@dataclass(frozen=True)
class Starts:
    """The warm starts of a scale, by the names that its grid has for them."""

    tables: Mapping[str, Mapping[str, Any]]
    folder: Path
    model: str = ""
    """What they begin with, instead of what the grid says."""

    def of(self, recipe: Tables) -> tuple[WarmStart, Path]:
        """How the model of a recipe is made, and where it lies; also of a completed recipe."""
        name = Path(recipe["algorithm"]["model"]).name.partition(".")[0]
        settings = dict(self.tables[name])
        world = settings.pop("world", None)
        usual = Imitation(**settings)
        imitation = replace(usual, model=self.model) if self.model else usual
        start = WarmStart(world or recipe["world"], imitation)
        if world is None:
            return start, start.path(self.folder)
        model = Path(imitation.model).name
        same = model == Path(usual.model).name
        return start, self.folder / "models" / (name if same else f"{name}.{model}")


def starts_of(grid: Grid, scale: str, folder: Path, model: str) -> Starts:
    """Only the full scale's start from a model that may be chosen."""
    return Starts(grid.tables["starts"], folder, model if scale == "full" else "")


def read_cells(scale: str, folder: Path, model: str) -> Grid:
    """The grid of a scale, with models and labels under `folder`."""
    grid = read_grid(Path(__file__).parent / "grid.toml", scale)
    starts = starts_of(grid, scale, folder, model)

    def complete(cell: Cell) -> Cell:
        recipe = changed(cell.recipe, {"algorithm.model": str(starts.of(cell.recipe)[1])})
        if recipe.get("partition", {}).get("strategy") == "hardness":
            recipe = changed(recipe, {"partition.labels": str(labels_path(recipe, folder))})
        if cell.part in grid.tables["chosen"]["parts"]:
            recipe = changed(recipe, {"algorithm.lr": step_size(recipe, grid)})
        return replace(cell, recipe=recipe, mark=BEFORE if cell.part in grid.tables["gone"] else "")

    cells = {part: list(map(complete, grid.cells[part])) for part in grid.tables["parts"]}
    return replace(grid, cells=cells)


def step_size(recipe: Tables, grid: Grid) -> float:
    """The one that was chosen for whoever learns so."""
    kind = recipe["federation"].get("kind", "federated")
    learner = {"federated": "fedagent"}.get(kind, kind)
    return float(grid.tables["chosen"][learner])


def labels_path(recipe: Tables, folder: Path) -> Path:
    """Labels are of a model and a world, whatever else the recipe says."""
    config = resolve({k: recipe[k] for k in ("federation", "algorithm", "world")})
    return folder / "models" / f"labels.{digest(config)}.json"


def label(config: Config, path: Path) -> None:
    """Play every training task once with the model that the runs start from."""
    uniform = type(config.partition)(size=config.partition.size)
    algorithm: Any = build_algorithm(replace(config, seed=0, partition=uniform))
    half = path.with_name(f".{path.name}.part")
    agents.write_successes(algorithm, algorithm.init(0), half, seed=0)
    half.rename(path)


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    """The runs, each after its warm start and its labels."""
    wanted = [cell for part in parts if part not in study.grid.tables["gone"]
              for cell in study.grid.cells[part]]  # fmt: skip
    starts = starts_of(study.grid, study.scale, study.place.runs, study.model)
    made = {
        str(path): Need(f"warm start of {path.name}", path.is_dir, partial(make, start, path))
        for start, path in (starts.of(cell.recipe) for cell in wanted)
    }

    def needs(config: Config) -> tuple[Need, ...]:
        start = made[config.algorithm.model]
        if not config.partition.labels:
            return (start,)
        path = Path(config.partition.labels)
        work = partial(label, config, path)
        return start, Need("labels of the training tasks", path.is_file, work, (start,))

    return tasks_of(wanted, study.grid, study.place, needs)
