"""What is measured for FedQHD, and how much of it: every size is a constant of this file.

A cell is a recipe of `recipes/fedqhd`, with the sizes of a scale and what was tuned for its method
(`fedqhd_methods`). Parts share runs: what Table 1 has is not computed again for a figure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from fedrl.config import loading
from fedrl.config.loading import find_recipe
from fedrl.runs.grid import RunCell
from reproductions.fedqhd import methods
from reproductions.fedqhd.methods import METHOD_SETTINGS, METHODS, TASKS

Recipe = dict[str, Any]
Parts = dict[str, list[RunCell]]

CLIENTS = 5
PARTS = ("table", "unsynced", "clients", "dimension", "anchors", "tuning")
ON_REQUEST = ("tuning",)
"""Its outcome is in METHOD_SETTINGS: computed again only where it is asked for by name."""
QHD_REFERENCE = {"bandwidth": 0.5, "lr": 0.1}
REFERENCE = "reference"
"""The cell whose value function stands for Q* where compilation is measured."""


@dataclass(frozen=True)
class Scale:
    """How much is spent. The defaults are the paper's."""

    features: int = 10_000
    sizes: tuple[int, ...] = (500, 1000, 2000, 5000, 10_000)
    # Layers of networks: of all, and of clients whose networks differ; the paper names the first.
    hidden: tuple[int, int] = (128, 128)
    widths: tuple[int, ...] = (32, 64, 128, 192, 256)
    seeds: tuple[int, ...] = (0, 1, 2)
    rounds: int = 12
    episodes: int = 50
    # N of Figure 4 beside CLIENTS, and on which tasks.
    agents: tuple[int, ...] = (1, 2, 20)
    agent_tasks: tuple[str, ...] = ("cartpole", "lunarlander")
    # Where the target is left alone but for what comes from the server.
    unsynced_tasks: tuple[str, ...] = ("cartpole", "acrobot", "mountaincar")
    # D of Figure 1, with `ratio` times as many anchors.
    dimensions: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048)
    ratio: int = 4
    # m of Figure 3, all of them and those that are trained with, at one D.
    fixed: int = 512
    anchors: tuple[int, ...] = (51, 102, 205, 307, 410, 512, 614, 768, 1024, 1536, 2048)
    trained_anchors: tuple[int, ...] = (51, 205, 512, 1024, 2048)
    # Draws of encoders and anchors behind an error, and states: to fit an oracle, and held out.
    draws: int = 15
    fit_states: int = 8192
    held_out: int = 2000
    # The most tries of a learner on a task; 0 is all.
    tries: int = 0
    everywhere: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all methods, over the recipes'."""


FULL = Scale()
SMALL = replace(FULL, features=2000, sizes=(500, 700, 1000, 1500, 2000))
SMOKE = Scale(
    features=32,
    sizes=(8, 16, 32),
    hidden=(8, 8),
    widths=(4, 8),
    seeds=(0, 1),
    rounds=2,
    episodes=3,
    agents=(1, 2),
    agent_tasks=("cartpole",),
    unsynced_tasks=("cartpole",),
    dimensions=(4, 8, 16),
    fixed=16,
    anchors=(4, 8, 16, 32, 64),
    trained_anchors=(4, 16, 64),
    draws=2,
    fit_states=200,
    held_out=100,
    tries=2,
    everywhere={"eval_episodes": 2},
)
SCALES = {"smoke": SMOKE, "small": SMALL, "full": FULL}


@cache
def read_recipe(task: str) -> Recipe:
    """Read once: a reproduction of hours is of the recipe that it started with."""
    return loading.read_recipe(find_recipe(f"fedqhd/{task}"))


@cache
def common() -> frozenset[str]:
    """What every Q-learner practises alike: the keys that a recipe says for networks, too."""
    from fedrl.algorithms.qhd.q_learning import Practice

    return frozenset(one.name for one in dataclasses.fields(Practice))


def recipe_of(
    scale: Scale, task: str, method: str, encoders: str, tuned: methods.Settings | None = None
) -> Recipe:
    """The run of a learner on a task; `tuned` instead of METHOD_SETTINGS where it is given."""
    about, recipe = METHODS[method], read_recipe(task)
    if tuned is None:
        tuned = METHOD_SETTINGS[task].get(f"{method}-{encoders}", {})
    said = {
        key: value
        for key, value in recipe["algorithm"].items()
        if key in common() or (key != "name" and not about.deep)
    }
    algorithm = (
        {"name": about.algorithm, **said, **sizes(scale, method, encoders), **tuned}
        | {"episodes": scale.episodes}
        | dict(scale.everywhere)
    )
    return {
        "rounds": scale.rounds,
        "eval_every": scale.rounds,  # what is reported are returns of training
        "federation": {"kind": about.kind, "clients": CLIENTS},
        "algorithm": algorithm,
        "world": recipe["world"],
    }


def sizes(scale: Scale, method: str, encoders: str) -> Recipe:
    """How large a learner is, in this column of the table."""
    about = METHODS[method]
    if about.algorithm == "feddqn":
        return {"hidden": list(scale.hidden)}
    if about.algorithm == "distill-dqn":
        return {"hidden": list(scale.hidden), "sizes": list(scale.widths * (encoders == "own"))}
    if encoders == "shared":
        return {"encoders": "shared", "features": scale.features}
    return {"encoders": "own", "agree": about.agree, "sizes": list(scale.sizes)}


def changed(recipe: Recipe, algorithm: Mapping[str, Any], **rest: Any) -> Recipe:
    """The recipe with other settings of its method, and others of its own."""
    return recipe | {"algorithm": recipe["algorithm"] | dict(algorithm)} | rest


# Parts


def cells(scale: Scale) -> Parts:
    """All cells of a scale, by part; a part names those of another that it reads."""
    return {
        "table": list(table(scale)),
        "unsynced": list(unsynced(scale)),
        "clients": list(clients(scale)),
        "dimension": [reference(scale), *dimension(scale)],
        "anchors": [reference(scale), *anchors(scale)],
        "tuning": list(tuning(scale)),
    }


def table_cell(scale: Scale, task: str, method: str, encoders: str) -> RunCell:
    """Its numbers are returns and minutes of training: evaluations are kept short."""
    recipe = changed(recipe_of(scale, task, method, encoders), {"eval_episodes": 1})
    return RunCell("table", f"{task}-{method}-{encoders}", recipe, scale.seeds)


def table(scale: Scale) -> Iterator[RunCell]:
    for task in TASKS:
        for method, encoders in methods.learners():
            yield table_cell(scale, task, method, encoders)


def tuning(scale: Scale) -> Iterator[RunCell]:
    for task in TASKS:
        for method, encoders in methods.learners():
            name = f"{method}-{encoders}"
            for number, tried in enumerate(methods.tries(task, name)[: scale.tries or None]):
                recipe = recipe_of(scale, task, method, encoders, tried)
                tried_with = methods.seeds(task, name, number)
                yield RunCell("tuning", f"{task}-{name}-{number}", recipe, tried_with)


def unsynced(scale: Scale) -> Iterator[RunCell]:
    """Targets that only the server's word moves: those of a client alone stay as they began."""
    for task in scale.unsynced_tasks:
        for method in ("independent", "fedqhd"):
            recipe = recipe_of(scale, task, method, "shared")
            never = changed(recipe, {"sync_episodes": 0, "sync_steps": 0})
            yield RunCell("unsynced", f"{task}-{method}", never, scale.seeds)


def clients(scale: Scale) -> Iterator[RunCell]:
    for task in scale.agent_tasks:
        recipe = recipe_of(scale, task, "fedqhd", "shared")
        for count in scale.agents:
            other = recipe | {"federation": {"kind": "federated", "clients": count}}
            yield RunCell("clients", f"{task}-{count}", other, scale.seeds)
        yield table_cell(scale, task, "fedqhd", "shared")


def compiled(scale: Scale, part: str, features: int, anchors: int) -> RunCell:
    """CartPole with own encoders of one D, evaluated as often as they agree."""
    recipe = recipe_of(scale, "cartpole", "fedqhd", "own")
    other = changed(recipe, {"sizes": [features], "anchors": anchors}, eval_every=1)
    return RunCell(part, f"D{features}-m{anchors}", other, scale.seeds)


def reference(scale: Scale) -> RunCell:
    """Oracle QHD on CartPole with the σ0 of the clients' own encoders.

    Of a Q* with finer features than theirs, what they cannot represent would be measured instead.
    """
    recipe = recipe_of(scale, "cartpole", "oracle-qhd", "shared", QHD_REFERENCE)
    return RunCell("dimension", REFERENCE, changed(recipe, {}, eval_every=1), scale.seeds)


def dimension(scale: Scale) -> Iterator[RunCell]:
    for features in scale.dimensions:
        yield compiled(scale, "dimension", features, scale.ratio * features)


def anchors(scale: Scale) -> Iterator[RunCell]:
    for count in scale.trained_anchors:
        yield compiled(scale, "anchors", scale.fixed, count)
