"""The cells of FedQHD's grid: rows of Table 1, what was tuned for each, what was tried.

Parts share runs: what Table 1 has is not computed again for a figure.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

from fedrl.core.types import Json, Tables
from reproductions.grid import Cell, Grid, Recipe, read_grid, recipe_of

ENCODERS = ("shared", "own")
"""The paper's homogeneous and heterogeneous columns."""
REFERENCE = "reference"
"""The cell whose value function stands for Q* where compilation is measured."""
NETWORKS = ("feddqn", "distill-dqn")
PRACTICE = "practice"
"""Of tuned settings: the name of a client's practice."""
DEEP_STEP = 7000
"""Features whose update takes as long as one of a network with two layers of 128."""
SIMULATED = 20_000
"""The same for a step of a world that is not compiled."""
BATCH = 16
"""Transitions of such an update."""

Settings = Tables
Parts = dict[str, list[Cell]]


@dataclass(frozen=True)
class Method:
    """A row of Table 1."""

    title: str
    algorithm: str
    kind: str = "federated"
    encoders: tuple[str, ...] = ENCODERS
    agree: str = "values"
    space: str = ""
    """What it is tuned in; nothing of a row at the paper's settings."""
    own_space: str = ""
    """With own encoders, if that is another."""
    fixed: Settings = field(default_factory=dict)
    """Settings that are not tuned."""
    like: str = ""
    """The row whose tuned settings it has, if it is not tuned itself."""
    paper: str = ""
    """The row of the paper's tables, if it has another name."""

    def space_of(self, encoders: str) -> str:
        return (encoders == "own" and self.own_space) or self.space


@dataclass(frozen=True)
class Sizes:
    """How much is spent, as [sizes] of the grid has it."""

    features: int
    own: list[int]
    hidden: list[int]
    widths: list[int]
    seeds: list[int]
    rounds: int
    episodes: int
    agents: list[int]
    agent_rounds: int
    recent: int
    agent_tasks: list[str]
    unsynced_tasks: list[str]
    dimensions: list[int]
    ratio: int
    fixed: int
    anchors: list[int]
    trained_anchors: list[int]
    draws: int
    fit_states: int
    held_out: int
    tries: int
    eval_episodes: int


@dataclass(frozen=True)
class Plan:
    """The grid's tables, and what follows from them."""

    tables: Tables
    sizes: Sizes
    methods: Mapping[str, Method]
    chosen: Mapping[str, Mapping[str, Settings]] = field(default_factory=dict)
    """By task and learner, what tuning chose."""

    @property
    def tasks(self) -> Mapping[str, str]:
        """Titles, by the names of their recipes."""
        return dict(self.tables["tasks"])

    @property
    def clients(self) -> int:
        return int(self.tables["clients"])

    # Learners

    def learner(self, method: str, encoders: str) -> str | None:
        """The run behind a cell of the table; None where there is none: FedAvg of other sizes."""
        name = f"{method}-{encoders}"
        own = name if encoders in self.methods[method].encoders else None
        return self.tables["same"].get(name, own)

    def learners(self) -> Iterator[tuple[str, str]]:
        """Everything that is a run of its own, as (method, encoders)."""
        for name, about in self.methods.items():
            for encoders in about.encoders:
                yield name, encoders

    def tuned(self) -> Iterator[tuple[str, str]]:
        """Those of them that are tuned."""
        for method, encoders in self.learners():
            if self.methods[method].space_of(encoders):
                yield method, encoders

    def tries(self, task: str, method: str, encoders: str) -> list[Json]:
        """The settings tried for a learner on a task: all combinations of every block."""
        blocks = self.tables["space"][self.methods[method].space_of(encoders)][task]
        tried = [
            dict(zip(block, values))
            for block in blocks
            for values in itertools.product(*block.values())
        ]
        return tried[: self.sizes.tries or None]

    # Recipes

    def recipe(
        self, task: str, method: str, encoders: str, tuned: Settings | None = None
    ) -> Recipe:
        """The run of a learner on a task; `tuned` instead of what was chosen where it is given."""
        about, recipe = self.methods[method], recipe_of(f"fedqhd/{task}")
        if tuned is None:
            row = f"{about.like or method}-{encoders}"
            tuned = self.chosen.get(task, {}).get(row, {})
        practice = dict(self.practice(task, tuned))
        world = practice.pop("world", {})
        network = about.algorithm in NETWORKS
        said = {
            key: value
            for key, value in recipe["algorithm"].items()
            if key in practised() or (key != "name" and not network)
        }
        own = {key: value for key, value in tuned.items() if key != PRACTICE}
        algorithm = {"name": about.algorithm, **said, **self.size_of(method, encoders)}
        algorithm |= {**practice, **own, **about.fixed, "episodes": self.sizes.episodes}
        if self.sizes.eval_episodes:
            algorithm["eval_episodes"] = self.sizes.eval_episodes
        return {
            "rounds": self.sizes.rounds,
            "eval_every": self.sizes.rounds,  # what is reported are returns of training
            "federation": {"kind": about.kind, "clients": self.clients},
            "algorithm": algorithm,
            "world": {**recipe["world"], **world},
        }

    def practice(self, task: str, tuned: Settings) -> Settings:
        """What a client practises otherwise than the recipe says."""
        found: Settings = self.tables["practices"][tuned.get(PRACTICE, "recipe")].get(task, {})
        return found

    def size_of(self, method: str, encoders: str) -> Recipe:
        """How large a learner is, in this column of the table."""
        about, sizes = self.methods[method], self.sizes
        if about.algorithm == "feddqn":
            return {"hidden": sizes.hidden}
        if about.algorithm == "distill-dqn":
            return {"hidden": sizes.hidden, "sizes": sizes.widths * (encoders == "own")}
        if encoders == "shared":
            return {"encoders": "shared", "features": sizes.features}
        return {"encoders": "own", "agree": about.agree, "sizes": sizes.own}

    # Parts

    @cached_property
    def cells(self) -> Parts:
        """All cells by part; a part names those of another that it reads."""
        return {
            "table": list(self.table()),
            "unsynced": list(self.unsynced()),
            "clients": list(self.by_clients()),
            "dimension": [self.reference(), *self.by_dimension()],
            "anchors": [self.reference(), *self.by_anchors()],
            "tuning": list(self.tuning()),
        }

    def cell(
        self, part: str, name: str, recipe: Recipe, seeds: tuple[int, ...] = (), **labels: str
    ) -> Cell:
        seeds = seeds or tuple(self.sizes.seeds)
        return Cell(part, name, recipe, seeds, labels=labels, weight=weight(recipe))

    def table_cell(self, task: str, method: str, encoders: str) -> Cell:
        """Its numbers are returns and minutes of training: evaluations are kept short."""
        recipe = changed(self.recipe(task, method, encoders), {"eval_episodes": 1})
        return self.cell("table", f"{task}-{method}-{encoders}", recipe, task=task)

    def table(self) -> Iterator[Cell]:
        for task in self.tasks:
            for method, encoders in self.learners():
                yield self.table_cell(task, method, encoders)

    def with_settings(self, task: str, method: str, encoders: str, tuned: Settings) -> Cell:
        """The cell of the table as it will be once these settings are chosen."""
        chosen = {task: {f"{self.methods[method].like or method}-{encoders}": tuned}}
        return replace(self, chosen=chosen).table_cell(task, method, encoders)

    def tuning(self) -> Iterator[Cell]:
        """Tries that are made of every row; `tuning.py` has those that follow from them."""
        for task in self.tasks:
            for method, encoders in self.tuned():
                for tried in self.tries(task, method, encoders):
                    yield self.trial(task, method, encoders, tried, screening=True)

    def trial(
        self, task: str, method: str, encoders: str, tried: Settings, screening: bool = False
    ) -> Cell:
        """Settings of a row, with the first of the tuning seeds and few rounds, or in full."""
        rule = self.tables["tuning"]
        recipe = changed(self.recipe(task, method, encoders, tried), {"eval_episodes": 1})
        said = "+".join(
            short(value) if key == PRACTICE else f"{key}_{short(value)}"
            for key, value in tried.items()
        )
        name, seeds = f"{task}-{method}-{encoders}+{said}", tuple(rule["seeds"])
        if screening:
            name, seeds = f"{name}+screening", seeds[:1]
            recipe |= {"rounds": rule["screening"], "eval_every": rule["screening"]}
        return self.cell("tuning", name, recipe, seeds, task=task)

    def unsynced(self) -> Iterator[Cell]:
        """Targets that only the server's word moves: those of a client alone stay as they began."""
        for task in self.sizes.unsynced_tasks:
            for method in ("independent", "fedqhd"):
                settings = self.tables["figures"]["unsynced"][task][method]
                recipe = self.recipe(task, method, "shared", settings)
                never = changed(recipe, {"sync_episodes": 0, "sync_steps": 0})
                yield self.cell("unsynced", f"{task}-{method}", never, task=task)

    def by_clients(self) -> Iterator[Cell]:
        sizes = self.sizes
        for task in sizes.agent_tasks:
            recipe = self.recipe(
                task, "fedqhd", "shared", self.tables["figures"]["clients"].get(task)
            )
            recipe = changed(recipe, {"recent": sizes.recent, "eval_episodes": 1})
            recipe |= {"rounds": sizes.agent_rounds, "eval_every": sizes.agent_rounds}
            for count in sizes.agents:
                other = recipe | {"federation": {"kind": "federated", "clients": count}}
                yield self.cell("clients", f"{task}-{count}", other, task=task)

    def compiled(self, part: str, features: int, anchors: int) -> Cell:
        """CartPole with own encoders of one D, evaluated as often as they agree."""
        recipe = self.recipe("cartpole", "fedqhd", "own", self.tables["figures"]["compiled"])
        other = changed(recipe, {"sizes": [features], "anchors": anchors}) | {"eval_every": 1}
        return self.cell(part, f"D{features}-m{anchors}", other, task="cartpole")

    def reference(self) -> Cell:
        """Oracle QHD on CartPole with the σ0 of the clients' own encoders.

        Of a Q* with finer features than theirs, what they cannot represent would be measured.
        """
        recipe = self.recipe("cartpole", "oracle-qhd", "shared", self.tables["reference"])
        return self.cell("dimension", REFERENCE, recipe | {"eval_every": 1}, task="cartpole")

    def by_dimension(self) -> Iterator[Cell]:
        for features in self.sizes.dimensions:
            yield self.compiled("dimension", features, self.sizes.ratio * features)

    def by_anchors(self) -> Iterator[Cell]:
        for count in self.sizes.trained_anchors:
            yield self.compiled("anchors", self.sizes.fixed, count)


def read_plan(scale: str) -> Plan:
    grid = read_grid(Path(__file__).parent / "grid.toml", scale)
    methods = {
        name: Method(**{**about, "encoders": tuple(about.get("encoders", ENCODERS))})
        for name, about in grid.tables["methods"].items()
    }
    return Plan(grid.tables, Sizes(**grid.tables["sizes"]), methods, grid.tables["chosen"])


def grid_of(plan: Plan) -> Grid:
    return Grid(plan.tables, plan.cells)


@cache
def practised() -> frozenset[str]:
    """What every Q-learner practises alike: the keys that a recipe says for networks, too."""
    from fedrl.algorithms.qhd.q_learning import Practice

    return frozenset(one.name for one in dataclasses.fields(Practice))


def changed(recipe: Recipe, algorithm: Settings) -> Recipe:
    """The recipe with other settings of its method."""
    return recipe | {"algorithm": recipe["algorithm"] | dict(algorithm)}


def weight(recipe: Recipe) -> float:
    """How long a round of a client may take: features read per step, times steps."""
    from fedrl.envs.discrete.worlds import TASKS

    settings, world = recipe["algorithm"], TASKS[recipe["world"]["name"]]
    width: float = DEEP_STEP
    often = settings.get("gradient_steps", 1) * settings.get("batch", BATCH)
    often /= BATCH * settings.get("train_every", 1)
    if settings["name"] not in NETWORKS:
        sizes = settings.get("sizes") or [settings.get("features", 0)]
        width = sum(sizes) / len(sizes)
    step = width * often + SIMULATED * (world.kernel is None)
    return float(settings["episodes"] * world.limit * step)


def short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
