"""What is measured for FedAgent, and how much of it: every size is a constant of this file.

Centralized and Local are the same learner in another federation. They run `longer` times as many
rounds as FedAgent, so that one run shows both views: equal local epochs (FedAgent's round R, the
paper's comparison) and equal rollouts (round M·R, because FedAgent plays with M clients at once).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from fedrl.config import loading
from fedrl.config.loading import find_recipe
from fedrl.runs.grid import RunCell
from fedrl.runs.warmstart import Settings as Imitation
from reproductions.fedagent.models import WarmStart, labels_path

CLIENTS = 100
COHORT = 2
LOCAL_EPOCHS = 3
LOCALS = (21, 42, 84)
"""The paper's clients that train alone."""
COHORTS = (1, 4)
EPOCHS = (1, 5)
"""Per round, beside LOCAL_EPOCHS; the rounds change so that the epochs in all stay the same."""
SHARES = (5, 80)
"""Tasks per client, beside the recipe's."""
MILD, EXTREME = {"omega": 0.1, "xi": 256.0}, {"omega": 0.9, "xi": 1.0}
FEW = 5
"""Tasks per client where momentum is tried under extreme heterogeneity."""
REMEDIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    # The anchored objective is a sum over tokens without clipping: a norm of 1 would cut every
    # step, and what β does shows beside the same objective with β all but 1.
    "unanchored": (
        "anchored momentum, β → 1",
        {"algorithm.beta": 1 - 1e-6, "algorithm.clip_norm": 3.3},
    ),
    "anchored": (
        "anchored momentum, β = 0.5",
        {"algorithm.beta": 0.5, "algorithm.clip_norm": 3.3},
    ),
    "prox": ("FedProx, μ = 0.01", {"algorithm.prox": 0.01}),
    "server": (
        "server momentum 0.9, step 0.3",
        {"algorithm.server_optimizer": "momentum", "algorithm.server_lr": 0.3},
    ),
}
"""What is tried against clients that differ: its name in a table, and its settings."""
ESTIMATORS = {"grpo": "GRPO", "gigpo": "GiGPO", "rloo": "RLOO"}
BASE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""What the full scale starts from, unless --model says another."""


@dataclass(frozen=True)
class Scale:
    """How much is spent. `rounds` are FedAgent's; sides are the parts that vary one setting."""

    seeds: tuple[int, ...]
    rounds: int
    side_rounds: int
    shop_rounds: int
    eval_every: int
    longer: int = COHORT
    remedies: tuple[str, ...] = ("unanchored", "anchored")
    locals: tuple[int, ...] = LOCALS
    clients: int = CLIENTS
    recipes: Mapping[str, str] = field(default_factory=dict)
    imitation: Mapping[str, Imitation] = field(default_factory=dict)
    everywhere: Mapping[str, Any] = field(default_factory=dict)
    household: Mapping[str, Any] = field(default_factory=dict)
    shop: Mapping[str, Any] = field(default_factory=dict)
    """Settings over the recipes': of both worlds, of one."""


SMALL = Scale(
    seeds=(0, 1, 2),
    rounds=20,
    side_rounds=10,
    shop_rounds=4,
    eval_every=2,
    recipes={"household": "fedagent/demo", "webshop": "fedagent/webshop_small"},
    imitation={
        "household": Imitation(tasks=300, steps=300, batch=32, listed=True),
        "webshop": Imitation(tasks=550, steps=300, spread=0.05, noise=0.0),
    },
    everywhere={
        "algorithm.eval_tasks": 200,
        "algorithm.estimator": "grpo",  # the paper's; the demo's is compared with it
        "partition.size": 20,
    },
    household={"world.public": 300, "world.unseen": 200},
    shop={"algorithm.estimator": "rloo", "partition.size": 100},  # as its recipe says
)
SMOKE = replace(
    SMALL,
    seeds=(0, 1),
    rounds=2,
    side_rounds=2,
    shop_rounds=2,
    eval_every=1,
    clients=10,
    locals=(2, 4),
    remedies=tuple(REMEDIES),
    imitation={
        "household": Imitation(tasks=20, steps=30, width=16, layers=1, lr=1e-2),
        # As much as it takes to buy something: a score is what there is to learn from.
        "webshop": Imitation(tasks=80, steps=200, batch=32, width=32, layers=2, lr=1e-2),
    },
    everywhere={
        "algorithm.eval_tasks": 6,
        "algorithm.tasks": 2,
        "algorithm.group": 2,
        "world.max_steps": 3,
        "partition.size": 8,
    },
    household={"world.public": 20, "world.unseen": 8, "world.train": 120},
    shop={
        "world.public": 80,
        "world.validation": 20,
        "world.products": 100,
        "world.max_steps": 6,
        "algorithm.group": 4,
        "algorithm.answer_tokens": 16,
        "algorithm.eval_split": "valid",
    },
)
FULL = Scale(
    seeds=(0,),
    rounds=20,
    side_rounds=0,
    shop_rounds=20,
    eval_every=4,
    longer=1,
    locals=(21,),
    recipes={"household": "fedagent/household", "webshop": "fedagent/webshop"},
    imitation={
        "household": Imitation(
            model=BASE_MODEL, tasks=180, times=3, steps=80, batch=64, lr=2e-4, prompt_tokens=320
        ),
        "webshop": Imitation(
            model=BASE_MODEL, tasks=400, steps=100, batch=64, lr=2e-4, noise=0.05, prompt_tokens=384
        ),
    },
    everywhere={
        "checkpoint_every": 10,
        "algorithm.local_epochs": 2,
        "algorithm.format": "compact",
        "algorithm.tasks": 16,
        "algorithm.lr": 2e-5,
        "algorithm.minibatch": 256,
        "algorithm.microbatch": 32,  # so that several runs share a GPU
        "algorithm.temperature": 0.7,
        "algorithm.kl": 0.0,
        "algorithm.entropy": 0.0,
        "algorithm.invalid_penalty": 0.0,
        "algorithm.by_episode": True,
    },
    household={
        "algorithm.answer_tokens": 16,
        "algorithm.prompt_tokens": 320,
        "world.max_steps": 30,
    },
    shop={
        "algorithm.answer_tokens": 48,
        "algorithm.prompt_tokens": 384,
        "algorithm.eval_tasks": 200,
        "world.public": 600,
    },
)
"""A model of 135M parameters: its settings follow the recipes' comments, for fewer rounds."""
SCALES = {"smoke": SMOKE, "small": SMALL, "full": FULL}
PARTS = {
    "smoke": ("main", "decentralized", "heterogeneity", "estimators", "momentum", "webshop"),
    "small": ("main", "decentralized", "heterogeneity", "estimators", "momentum", "webshop"),
    "full": ("alfworld", "webshop_full"),
}

Recipe = dict[str, Any]
Parts = dict[str, list[RunCell]]


def changed(recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> Recipe:
    """The recipe with some dotted keys set: {"world.size": "tiny"}."""
    tables = {k: dict(v) if isinstance(v, Mapping) else v for k, v in recipe.items()}
    for key, value in changes.items():
        table, _, inner = key.partition(".")
        if inner:
            tables.setdefault(table, {})[inner] = value
        else:
            tables[table] = value
    return tables


def with_model(scale: Scale, model: str) -> Scale:
    """The scale whose warm starts begin with this model instead of theirs."""
    starts = {name: replace(one, model=model) for name, one in scale.imitation.items()}
    return replace(scale, imitation=starts)


def base(scale: Scale, world: str) -> Recipe:
    """FedAgent's recipe at this scale, before its model is known."""
    own = scale.household if world == "household" else scale.shop
    recipe = read_recipe(scale.recipes[world])
    settings = {
        "seed": 0, "eval_every": scale.eval_every, "checkpoint_every": 1, "engine": "inprocess",
        "workers": 0, "track": [], "federation.kind": "federated",
        "federation.clients": scale.clients, "federation.cohort": COHORT,
        "algorithm.local_epochs": LOCAL_EPOCHS,
    }  # fmt: skip
    return changed(recipe, settings | dict(scale.everywhere) | dict(own))


@cache
def read_recipe(name: str) -> Recipe:
    """Read once: a reproduction of hours is of the recipe that it started with."""
    return loading.read_recipe(find_recipe(name))


def warm_start(scale: Scale, world: str) -> WarmStart:
    return WarmStart(base(scale, world)["world"], scale.imitation[world])


def recipe_of(scale: Scale, world: str, folder: Path) -> Recipe:
    """FedAgent's recipe, starting from the warm-started model."""
    model = warm_start(scale, world).path(folder)
    return changed(base(scale, world), {"algorithm.model": str(model)})


def cells(name: str, scale: Scale, folder: Path) -> Parts:
    """All cells of a scale, by part."""
    builders: dict[str, Callable[[], list[RunCell]]] = {
        "main": lambda: comparison(scale, "main", "household", scale.rounds, folder),
        "decentralized": lambda: decentralized(scale, folder),
        "heterogeneity": lambda: heterogeneity(scale, folder),
        "estimators": lambda: estimators(scale, folder),
        "momentum": lambda: momentum(scale, folder),
        "webshop": lambda: comparison(scale, "webshop", "webshop", scale.shop_rounds, folder),
        "alfworld": lambda: comparison(scale, "alfworld", "household", scale.rounds, folder),
        "webshop_full": lambda: comparison(
            scale, "webshop_full", "webshop", scale.shop_rounds, folder
        ),
    }
    return {part: builders[part]() for part in PARTS[name]}


def comparison(scale: Scale, part: str, world: str, rounds: int, folder: Path) -> list[RunCell]:
    """FedAgent, Centralized and Local."""
    recipe = recipe_of(scale, world, folder) | {"rounds": rounds}
    alone = {"rounds": scale.longer * rounds, "federation.cohort": 0}
    rows = {"fedagent": {}, "centralized": alone | {"federation.kind": "centralized"}} | {
        f"local-{client}": alone | {"federation.kind": "local", "federation.client": client}
        for client in scale.locals
    }
    return [RunCell(part, name, changed(recipe, row), scale.seeds) for name, row in rows.items()]


def side(scale: Scale, part: str, rows: Mapping[str, Recipe], folder: Path) -> list[RunCell]:
    """FedAgent with one setting changed, for fewer rounds."""
    recipe = recipe_of(scale, "household", folder) | {"rounds": scale.side_rounds}
    return [RunCell(part, name, changed(recipe, row), scale.seeds) for name, row in rows.items()]


def decentralized(scale: Scale, folder: Path) -> list[RunCell]:
    rows: dict[str, Recipe] = {f"clients-{m}": {"federation.cohort": m} for m in COHORTS}
    for epochs in EPOCHS:
        rows[f"epochs-{epochs}"] = {
            "algorithm.local_epochs": epochs,
            "rounds": max(1, round(scale.side_rounds * LOCAL_EPOCHS / epochs)),
            "eval_every": max(1, round(scale.eval_every * LOCAL_EPOCHS / epochs)),
        }
    rows |= {f"tasks-{size}": {"partition.size": size} for size in SHARES}
    return side(scale, "decentralized", rows, folder)


def heterogeneity(scale: Scale, folder: Path) -> list[RunCell]:
    labels = str(labels_path(recipe_of(scale, "household", folder), folder))
    rows: dict[str, Recipe] = {}
    for word, strength in (("mild", MILD), ("extreme", EXTREME)):
        rows[f"preference-{word}"] = preference(strength)
        rows[f"coverage-{word}"] = {
            "partition.strategy": "coverage", "partition.xi": strength["xi"],
        }  # fmt: skip
        rows[f"hardness-{word}"] = {
            "partition.strategy": "hardness", "partition.xi": strength["xi"],
            "partition.labels": labels,
        }  # fmt: skip
    return side(scale, "heterogeneity", rows, folder)


def preference(strength: Mapping[str, float]) -> Recipe:
    return {"partition.strategy": "preference", "partition.omega": strength["omega"]}


def estimators(scale: Scale, folder: Path) -> list[RunCell]:
    """Those that the recipe does not use itself."""
    usual = estimator_of(base(scale, "household"))
    rows = {name: {"algorithm.estimator": name} for name in ESTIMATORS if name != usual}
    return side(scale, "estimators", rows, folder)


def estimator_of(recipe: Mapping[str, Any]) -> str:
    return str(recipe["algorithm"].get("estimator", "grpo"))


def momentum(scale: Scale, folder: Path) -> list[RunCell]:
    """Remedies under extreme heterogeneity, and β under the mild one of `heterogeneity`."""
    hard = preference(EXTREME) | {"partition.size": FEW}
    rows: dict[str, Recipe] = {"extreme": hard}
    for name in scale.remedies:
        rows[f"extreme-{name}"] = {**hard, **REMEDIES[name][1]}
    for name in ("unanchored", "anchored"):
        rows[f"mild-{name}"] = preference(MILD) | dict(REMEDIES[name][1])
    return side(scale, "momentum", rows, folder)
