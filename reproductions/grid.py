"""A paper's `grid.toml`, expanded into cells: what is measured, and how much of it at each scale.

    keep = ["eval/return"]                  # what a run's record has by round, beside totals

    [axes.learner]                          # a named axis: settings by label
    pavg = {algorithm.name = "pavg"}

    [[table2]]                              # a part is a list of blocks
    like = "tabular"                        # settings of [settings.tabular] come first
    recipe = "momentum/random_mdp"          # and before them a recipe's, if one is named
    cell = "beta={beta},kappa={kappa}"      # a cell's name, of its labels
    seeds = {smoke = 4, small = 200, full = 1000}      # so many, from `first` on; or a list
    settings = {rounds = 6}
    [table2.axes]                           # the cells are all combinations, the last axis inside
    kappa = {set = "world.kappa", to = [0.0, 1.0]}
    learner = {axis = "learner", only = {smoke = ["pavg"], else = []}}     # none named: all
    [table2.by.learner]                     # more settings of some labels
    pavg = {algorithm.lr = 0.1}

A table whose keys are scales (and `else`) stands for the value of the scale that is asked for,
wherever it is.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core.types import Json, Tables
from fedrl.runs.grid import RunCell, digest, short_hash
from fedrl.runs.read import flatten

SCALES = ("smoke", "small", "full")
Recipe = Json


@dataclass(frozen=True)
class Cell(RunCell):
    """One setting with its seeds; `labels` say where on the axes of its block it lies.

    Seeds are runs of their own, with a record each, unless they are computed `together`: then the
    cell has one record, with `bands` of these metrics over seeds beside those of the return.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    together: bool = False
    bands: tuple[str, ...] = ()
    compare: tuple[str, ...] = ("last", "mean")
    """What is kept of every seed of a cell together: the return at the end, and over the run."""
    weight: float = 1.0
    """How long a round of a client takes, against those of other blocks."""
    worth: float = 0.0
    """What is worth more is computed first."""
    share: float = 0.1
    """The last part of a number's rounds, of whose evaluations it is the mean: earlier ones would
    tell of an agent that has learned less."""
    most: int = 2
    """Evaluations behind a number, at most: one of 200 episodes is noisy."""

    @property
    def rounds(self) -> int:
        return int(self.recipe["rounds"])

    @property
    def local_epochs(self) -> int:
        return int(self.recipe["algorithm"]["local_epochs"])

    @property
    def clients_per_round(self) -> int:
        settings = self.recipe["federation"]
        alone = settings.get("kind", "federated") in ("local", "centralized")
        return 1 if alone else int(settings.get("cohort") or settings["clients"])

    def epochs(self, rounds: int | None = None) -> int:
        """Client epochs of one seed."""
        rounds = self.rounds if rounds is None else rounds
        return rounds * self.clients_per_round * self.local_epochs

    def resolved(self, seed: int = 0) -> Config:
        return resolve({**self.recipe, "seed": seed})

    def digest(self, seed: int) -> str:
        """Of one run, or of all seeds together."""
        recipe = json.dumps(self.recipe, sort_keys=True)
        if not self.together:
            return digest_of(recipe, seed, self.mark)
        seeds = list(self.span.values()) or list(self.seeds)
        return short_hash([digest_of(recipe, 0, self.mark), *seeds])

    @property
    def span(self) -> dict[str, int]:
        """The first seed and how many there are; nothing if they leave one out."""
        first, count = self.seeds[0], len(self.seeds)
        gapless = self.seeds == tuple(range(first, first + count))
        return {"first": first, "count": count} if gapless else {}


@cache
def digest_of(recipe: str, seed: int, mark: str) -> str:
    """Asked several times for every page."""
    return digest(resolve({**json.loads(recipe), "seed": seed}), mark)


@dataclass(frozen=True)
class Grid:
    """What a paper's file says at one scale."""

    tables: Tables
    cells: Mapping[str, Sequence[Cell]]
    """By part."""

    @property
    def keep(self) -> tuple[str, ...]:
        return tuple(self.tables.get("keep", ()))

    @property
    def keep_clients(self) -> tuple[str, ...]:
        """Metrics whose values of every client are kept."""
        return tuple(self.tables.get("keep_clients", ()))


def read_grid(path: Path, scale: str) -> Grid:
    tables = at_scale(tomllib.loads(path.read_text(encoding="utf-8")), scale)
    parts = {name: blocks for name, blocks in tables.items() if is_part(blocks)}
    cells = {part: [c for b in blocks for c in expand(part, b, tables)]
             for part, blocks in parts.items()}  # fmt: skip
    return Grid(tables, cells)


def is_part(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def at_scale(value: Any, scale: str) -> Any:
    """With every choice by scale made."""
    if isinstance(value, dict):
        if value and set(value) <= {*SCALES, "else"}:
            return at_scale(value[scale] if scale in value else value["else"], scale)
        return {key: at_scale(one, scale) for key, one in value.items()}
    return [at_scale(one, scale) for one in value] if isinstance(value, list) else value


def expand(part: str, block: Tables, tables: Tables) -> Iterator[Cell]:
    """All combinations of the block's axes; none where one has no points at this scale."""
    axes = {name: points(axis, tables) for name, axis in block.get("axes", {}).items()}
    common = flatten(tables.get("settings", {}).get(block.get("like", ""), {}))
    common |= flatten(block.get("settings", {}))
    for chosen in itertools.product(*axes.values()):
        labels = {name: label for name, (label, _) in zip(axes, chosen)}
        recipe: Recipe = {}
        if "recipe" in block:
            recipe = dict(recipe_of(block["recipe"].format(**labels)))
        settings = dict(common)
        for axis, (label, own) in zip(axes, chosen):
            settings |= own | flatten(block.get("by", {}).get(axis, {}).get(label, {}))
        yield Cell(
            part,
            block["cell"].format(**labels),
            changed(recipe, settings),
            seeds_of(block),
            labels=labels,
            together=block.get("together", False),
            bands=tuple(block.get("bands", ())),
            compare=tuple(block.get("compare", ("last", "mean"))),
            weight=float(block.get("weight", 1.0)),
            worth=float(block.get("worth", 0.0)),
            **tables.get("averaged", {}),
        )


def points(axis: Any, tables: Tables) -> list[tuple[str, Json]]:
    """Labels and settings along an axis."""
    if isinstance(axis, str):
        return points(tables["axes"][axis], tables)
    if "axis" in axis:
        named = points(tables["axes"][axis["axis"]], tables)
        return [point for point in named if not axis["only"] or point[0] in axis["only"]]
    if "set" in axis:
        return [(str(value), {axis["set"]: value}) for value in axis["to"]]
    return [(label, flatten(settings)) for label, settings in axis.items()]


def seeds_of(block: Tables) -> tuple[int, ...]:
    seeds, first = block["seeds"], block.get("first", 0)
    return tuple(seeds) if isinstance(seeds, list) else tuple(range(first, first + seeds))


@cache
def recipe_of(name: str) -> Recipe:
    """Read once: a reproduction of hours is of the recipe that it started with."""
    return {k: v for k, v in read_recipe(find_recipe(name)).items() if k != "name"}


def changed(recipe: Tables, changes: Tables) -> Recipe:
    """The recipe with some dotted keys set: {"world.size": "tiny"}."""
    tables = {k: dict(v) if isinstance(v, Mapping) else v for k, v in recipe.items()}
    for key, value in changes.items():
        table, _, inner = key.partition(".")
        if inner:
            tables.setdefault(table, {})[inner] = value
        else:
            tables[table] = value
    return tables
