"""What is measured for FedRLHF on ratings, and how much of it: every size is in this file.

A cell is the recipe `fedrlhf/movielens` with a few settings changed. The small scale is the paper's
own size already, so that the full scale reads these runs; only IMDb (`fedrlhf_imdb_cells`) differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedrl.config import loading
from fedrl.config.loading import find_recipe
from fedrl.runs.grid import RunCell
from reproductions.fedagent.cells import changed
from reproductions.fedrlhf.logs import KINDS, Log
from reproductions.fedrlhf.theory import Measurement

Recipe = dict[str, Any]
Cells = list[RunCell]

PARTS = ("movielens", "tradeoff", "feedback", "bound", "imdb")
SEEDS = (0, 42, 101, 123, 4242)
"""The paper's."""
BOUND_LAMS = (0.0, 1.0)


@dataclass(frozen=True)
class Method:
    """A row of the table: its name there, and what differs from the recipe."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)


METHODS = {
    "fedrlhf": Method("FedRLHF"),
    "labels": Method(
        "told the labels (bandit)", {"algorithm.reward": "labels", "algorithm.feedback": "none"}
    ),
    "plain": Method("λ = 0, intrinsic reward only", {"algorithm.lam": [0.0]}),
    "independent": Method("every client alone", {"federation.kind": "independent"}),
    "centralized": Method("centralized, one client has all", {"federation.kind": "centralized"}),
}
"""All but the second learn from the same R0; the first and the last two from feedback as well. The
second is paid the true label, but only for the action that it takes."""


@dataclass(frozen=True)
class Scale:
    """How much is spent. The defaults are the paper's where it names a number."""

    seeds: tuple[int, ...] = SEEDS
    clients: tuple[int, ...] = (10, 50)
    rounds: int = 5
    # λ of the trade-off, and its rounds: long enough to see when a run has learned.
    lams: tuple[float, ...] = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
    long: int = 20
    # Whose person says the opposite where one does.
    flipped: int = 0
    # τ and rounds of Theorem 4.1's algorithm.
    local_steps: int = 5
    bound_rounds: int = 40
    world: Mapping[str, Any] = field(default_factory=lambda: {"source": "movielens"})
    everywhere: Mapping[str, Any] = field(default_factory=dict)
    """Settings over the recipe's."""


GENERATED: Mapping[str, Any] = {"source": "generated"}
SMALL = Scale()
SMOKE = Scale(
    seeds=(0, 1),
    clients=(3, 4),
    rounds=2,
    lams=(0.0, 0.5, 1.0, 2.0),
    long=3,
    local_steps=2,
    bound_rounds=3,
    world={**GENERATED, "users": 12, "movies": 40, "ratings": 20, "least": 6},
    everywhere={"algorithm.rate": 10, "algorithm.compare": 10, "algorithm.reward_epochs": 2},
)
SCALES = {"smoke": SMOKE, "small": SMALL, "full": SMALL}


@cache
def read_recipe(name: str) -> Recipe:
    """Read once: a reproduction is of the recipe that it started with."""
    return loading.read_recipe(find_recipe(name))


def base(scale: Scale, clients: int, rounds: int) -> Recipe:
    # Runs of seconds: of clients alone, a checkpoint takes longer than a round.
    settings = {"rounds": rounds, "checkpoint_every": rounds, "federation.clients": clients}
    world = {f"world.{key}": value for key, value in scale.world.items()}
    return changed(read_recipe("fedrlhf/movielens"), settings | world | dict(scale.everywhere))


def cells(scale: Scale, folder: Path) -> dict[str, Cells]:
    """All cells of ratings, by part; `folder` is where answers are logged."""
    return {
        "movielens": movielens(scale),
        "tradeoff": tradeoff(scale),
        "feedback": feedback(scale, folder),
    }


def movielens(scale: Scale) -> Cells:
    return [
        RunCell(
            "movielens",
            f"K{clients}-{name}",
            changed(base(scale, clients, scale.rounds), method.settings),
            scale.seeds,
        )
        for clients in scale.clients
        for name, method in METHODS.items()
    ]


def tradeoff(scale: Scale) -> Cells:
    recipe = base(scale, scale.clients[0], scale.long)
    return [
        RunCell("tradeoff", f"lam-{lam:g}", changed(recipe, {"algorithm.lam": [lam]}), scale.seeds)
        for lam in scale.lams
    ]


# Feedback that is not what it should be


def log_of(scale: Scale, kind: str, seed: int) -> Log:
    recipe = base(scale, scale.clients[0], scale.rounds)
    return Log(kind, seed, scale.clients[0], scale.flipped, recipe["world"])


def feedback(scale: Scale, folder: Path) -> Cells:
    """One cell per seed, because every seed has other users and so other files of answers.

    Only scores are asked about: what a person says of a pair depends on the model's order, which a
    file written beforehand cannot know.
    """
    recipe = changed(base(scale, scale.clients[0], scale.rounds), {"algorithm.compare": 0})
    found = [RunCell("feedback", "none", silent(recipe), scale.seeds)]
    for kind in KINDS:
        for seed in scale.seeds:
            files = log_of(scale, kind, seed).files(folder)
            told = {"algorithm.feedback": "logged", "algorithm.feedback_file": files}
            found.append(RunCell("feedback", f"{kind}-{seed}", changed(recipe, told), (seed,)))
    return found


def silent(recipe: Recipe) -> Recipe:
    return changed(recipe, {"algorithm.feedback": "none"})


# The bound


def bounds(scale: Scale) -> list[Measurement]:
    """The theorem's own algorithm, with and without feedback."""
    settings = {
        "aggregate.name": "mean",
        "algorithm.method": "policy-gradient",
        "algorithm.optimizer": "sgd",
        "algorithm.local_steps": scale.local_steps,
    }
    recipe = changed(base(scale, scale.clients[0], scale.bound_rounds), settings)
    return [
        Measurement(lam, seed, scale.bound_rounds, changed(recipe, {"algorithm.lam": [lam]}))
        for lam in BOUND_LAMS
        for seed in scale.seeds
    ]
