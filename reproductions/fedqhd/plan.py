"""The cells of FedQHD's grid: rows of Table 1, what was tuned for each, what was tried.

Parts share runs: what Table 1 has is not computed again for a figure.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from fedrl.core.types import Json, Tables
from reproductions.grid import Cell, Grid, Recipe, read_grid, recipe_of

ENCODERS = ("shared", "own")
"""The paper's homogeneous and heterogeneous columns."""
REFERENCE = "reference"
"""The cell whose value function stands for Q* where compilation is measured."""
NETWORKS = ("feddqn", "distill-dqn")
DEEP_STEP = 7000
"""Features whose update takes as long as one of a network with two layers of 128."""
SIMULATED = 20_000
"""The same for a step of a world that is not compiled."""

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

    def tries(self, task: str, name: str) -> list[Json]:
        """The settings tried for a learner (`fedqhd-own`) on a task: all combinations."""
        algorithm = self.methods[name.rpartition("-")[0]].algorithm
        kind = {"feddqn": "dqn", "distill-dqn": "distill"}.get(algorithm, "qhd")
        if name in ("fedqhd-own", "corrections-own"):
            kind = "compiled"
        grid = self.tables["tries"][kind][task]
        tried = [dict(zip(grid, values)) for values in itertools.product(*grid.values())]
        if name in self.tables["box"][task]:
            tried.append({**self.tables["box"][task][name], "anchor_source": "box"})
        return tried[: self.sizes.tries or None]

    def tuning_seeds(self, task: str, name: str, number: int) -> tuple[int, ...]:
        """With which a try is made."""
        again = number in self.tables["finalists"].get(task, {}).get(name, ())
        return tuple(self.tables["tuning_seeds"]["finalists" if again else "all"])

    # Recipes

    def recipe(
        self, task: str, method: str, encoders: str, tuned: Settings | None = None
    ) -> Recipe:
        """The run of a learner on a task; `tuned` instead of what was chosen where it is given."""
        about, recipe = self.methods[method], recipe_of(f"fedqhd/{task}")
        if tuned is None:
            tuned = self.chosen.get(task, {}).get(f"{method}-{encoders}", {})
        network = about.algorithm in NETWORKS
        said = {
            key: value
            for key, value in recipe["algorithm"].items()
            if key in practised() or (key != "name" and not network)
        }
        algorithm = {"name": about.algorithm, **said, **self.size_of(method, encoders), **tuned}
        algorithm["episodes"] = self.sizes.episodes
        if self.sizes.eval_episodes:
            algorithm["eval_episodes"] = self.sizes.eval_episodes
        return {
            "rounds": self.sizes.rounds,
            "eval_every": self.sizes.rounds,  # what is reported are returns of training
            "federation": {"kind": about.kind, "clients": self.clients},
            "algorithm": algorithm,
            "world": recipe["world"],
        }

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

    def tuning(self) -> Iterator[Cell]:
        for task in self.tasks:
            for method, encoders in self.learners():
                name = f"{method}-{encoders}"
                for number, tried in enumerate(self.tries(task, name)):
                    recipe = self.recipe(task, method, encoders, tried)
                    seeds = self.tuning_seeds(task, name, number)
                    yield self.cell("tuning", f"{task}-{name}-{number}", recipe, seeds, task=task)

    def unsynced(self) -> Iterator[Cell]:
        """Targets that only the server's word moves: those of a client alone stay as they began."""
        for task in self.sizes.unsynced_tasks:
            for method in ("independent", "fedqhd"):
                recipe = self.recipe(task, method, "shared")
                never = changed(recipe, {"sync_episodes": 0, "sync_steps": 0})
                yield self.cell("unsynced", f"{task}-{method}", never, task=task)

    def by_clients(self) -> Iterator[Cell]:
        for task in self.sizes.agent_tasks:
            recipe = self.recipe(task, "fedqhd", "shared")
            for count in self.sizes.agents:
                other = recipe | {"federation": {"kind": "federated", "clients": count}}
                yield self.cell("clients", f"{task}-{count}", other, task=task)
            yield self.table_cell(task, "fedqhd", "shared")

    def compiled(self, part: str, features: int, anchors: int) -> Cell:
        """CartPole with own encoders of one D, evaluated as often as they agree."""
        recipe = self.recipe("cartpole", "fedqhd", "own")
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
    if settings["name"] not in NETWORKS:
        sizes = settings.get("sizes") or [settings.get("features", 0)]
        width = sum(sizes) / len(sizes)
    return float(settings["episodes"] * world.limit * (width + SIMULATED * (world.kernel is None)))
