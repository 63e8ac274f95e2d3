"""What is measured about clients that lie, and how much of it: every size is in this file.

A cell is a recipe with one rule of aggregation and a fifth of its clients under one attack, or
nobody. A rule assumes that fifth in every run, the clean one included: a server cannot know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from fedrl.clients.attacks import Kind
from fedrl.runs.grid import RunCell
from fedrl.runs.warmstart import Settings as Imitation
from reproductions.fedagent.cells import SMALL as FEDAGENT
from reproductions.fedagent.cells import SMOKE as TINY_FEDAGENT
from reproductions.fedagent.cells import changed, read_recipe
from reproductions.fedagent.models import WarmStart

RULES = ("mean", "median", "trimmed", "krum", "multi-krum", "bulyan", "norm-bound")
ATTACKS: tuple[str, ...] = get_args(Kind)
CLEAN = "clean"
"""The column in which nobody lies."""
CLIENTS, SHARE = 15, 0.2
"""3 liars among 15: Bulyan wants 4f + 3 clients, so that none of the rules is at an advantage."""


@dataclass(frozen=True)
class World:
    """Where the rules are tried: a recipe, its number that tells how good an agent is, seeds."""

    title: str
    recipe: str
    metric: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    """Over the recipe's."""
    imitation: Imitation | None = None
    """How the model that runs start from is made; none where they start from nothing."""

    @property
    def base(self) -> dict[str, Any]:
        """The recipe of all cells, before rule, attack and model."""
        common = {"federation.clients": CLIENTS, "federation.cohort": 0, "aggregate.trim": SHARE}
        settings = common | {"aggregate.byzantine": SHARE} | dict(self.settings)
        return changed(read_recipe(self.recipe), settings)

    @property
    def warm_start(self) -> WarmStart | None:
        return WarmStart(self.base["world"], self.imitation) if self.imitation else None


@dataclass(frozen=True)
class Scale:
    """Which rules meet which attacks, and where; the worlds are the parts."""

    worlds: Mapping[str, World]
    rules: tuple[str, ...] = RULES
    attacks: tuple[str, ...] = ATTACKS


CARTPOLE = World(
    "CartPole",
    "momentum/cartpole",
    "eval/return",
    tuple(range(5)),
    {"rounds": 60, "eval_every": 3, "checkpoint_every": 60},
)
HOUSEHOLD = World(
    "FedAgent's demo",
    "fedagent/demo",
    "eval/success",
    (0,),
    {
        "rounds": 10,
        "eval_every": 10,
        "checkpoint_every": 5,
        "partition.size": 100,  # 15 clients hold about as many tasks as the demo's 100
        "algorithm.tasks": 2,
        "algorithm.minibatch": 64,  # about four steps of so few episodes
        "algorithm.lr": 1e-3,
        "world.public": 300,
        "world.unseen": 400,
    },
    FEDAGENT.imitation["household"],
)
SMALL = Scale({"cartpole": CARTPOLE, "fedagent": HOUSEHOLD})
SMOKE = Scale(
    {
        "cartpole": replace(CARTPOLE, seeds=(0,), settings={"rounds": 3}),
        "fedagent": replace(
            HOUSEHOLD,
            settings={
                **HOUSEHOLD.settings,
                "rounds": 2,
                "eval_every": 2,
                "partition.size": 8,
                "algorithm.group": 2,
                "world.max_steps": 3,
                "world.public": 20,
                "world.unseen": 8,
                "world.train": 120,
            },
            imitation=TINY_FEDAGENT.imitation["household"],
        ),
    },
    rules=("mean", "median"),
    attacks=("sign-flip",),
)
FULL = Scale(
    {
        "cartpole": replace(CARTPOLE, seeds=tuple(range(10))),
        "fedagent": replace(HOUSEHOLD, seeds=tuple(range(5))),
    }
)
SCALES = {"smoke": SMOKE, "small": SMALL, "full": FULL}
PARTS = tuple(SMALL.worlds)


def cells(scale: Scale, part: str, folder: Path) -> list[RunCell]:
    """Every rule in every column; `folder` is where models lie."""
    world = scale.worlds[part]
    recipe = world.base
    if world.warm_start:
        recipe = changed(recipe, {"algorithm.model": str(world.warm_start.path(folder))})
    return [
        RunCell(part, name(rule, attack), changed(recipe, settings(rule, attack)), world.seeds)
        for rule in scale.rules
        for attack in (CLEAN, *scale.attacks)
    ]


def name(rule: str, attack: str) -> str:
    return f"{rule}-{attack}"


def settings(rule: str, attack: str) -> dict[str, Any]:
    lies = {} if attack == CLEAN else {"attack.share": SHARE, "attack.kind": attack}
    return {"aggregate.name": rule, **lies}
