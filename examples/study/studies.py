"""What is run: an example's recipe, the methods that are compared, learning rates and seeds.

Where several rates are listed, TUNING seeds choose one for every method, and SEEDS are run with it
and reported. A record is a small file, records/EXAMPLE/METHOD-lrRATE-seedSEED-DIGEST.json, with
settings, evaluations by round, commit, machine and date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.api import warm_start
from fedrl.config.loading import find_recipe, read_recipe
from fedrl.core.types import Json
from fedrl.runs.grid import short_hash
from fedrl.runs.read import flatten
from reproductions.grid import changed
from reproductions.records import Store

EXAMPLES = Path(__file__).resolve().parent.parent
for _code in ("sort_digits/src", "word_game/src", "environments"):
    sys.path.append(str(EXAMPLES / _code))
SEEDS, TUNING = (0, 1, 2), (10, 11)


# What runs begin with, made in the working folder


def write_digits() -> None:
    """The prompts, and a model that has imitated some public answers."""
    from fedrl_sort_digits import write

    write(Path("data/sort_digits"))
    world = {"name": "prompts", "source": "data/sort_digits", "answer": "answer",
             "reward": ["exact_match"]}  # fmt: skip
    warm_start(world, "models/sort_digits", tasks=2000, steps=80)


def watch_expert() -> None:
    """A model that has seen the expert play public games."""
    warm_start("fedrl_word_game:WordGame", "models/word-game", tasks=400, steps=90)


def make_beginner(name: str) -> None:
    """An environment's questions and beginner."""
    from train import prepare

    prepare(name)


# What is compared


@dataclass(frozen=True)
class Study:
    """An example; the README in `folder` shows it."""

    folder: str
    recipe: str
    begin: Callable[[], None]
    needs: str = ""
    """A package that may be missing."""
    settings: Json = field(default_factory=dict)
    methods: Mapping[str, Json] = field(default_factory=lambda: {"federated": {}})
    rates: tuple[float, ...] = ()
    """Learning rates to choose from; none: the recipe's."""


def environment(name: str, **more: Any) -> Study:
    """One of examples/environments."""
    recipe = EXAMPLES / "environments" / f"{name}.toml"
    return Study("environments", str(recipe), partial(make_beginner, name), **more)


STUDIES = {
    "sort_digits": Study(
        "sort_digits",
        "prompts/sort_digits",
        write_digits,
        settings={
            "world.reward": ["fedrl_sort_digits:correct", "fedrl_sort_digits:right_places"],
            "world.weights": [1.0, 0.2],
        },
        methods={
            "federated": {},
            "centralized": {"federation.kind": "centralized", "algorithm.local_epochs": 15},
            "as-many": {
                "federation.kind": "local",
                "federation.clients": 1,
                "algorithm.local_epochs": 15,
                "partition.strategy": "uniform",
                "partition.size": 500,
            },
            "local": {"federation.kind": "local"},
            "local-more": {"federation.kind": "local", "algorithm.local_epochs": 15},
        },
        rates=(6.25e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3),
    ),
    "word_game": Study(
        "word_game",
        str(EXAMPLES / "word_game" / "recipe.toml"),
        watch_expert,
        settings={"world.name": "fedrl_word_game:WordGame"},
    ),
    "higher_lower": environment("higher_lower", needs="openenv"),
    "word_hints": environment("word_hints", needs="verifiers"),
    "prices": environment("prices"),
}


@dataclass(frozen=True)
class Cell:
    """One run."""

    study: str
    method: str
    seed: int
    rate: float | None = None

    @property
    def name(self) -> str:
        rate = "" if self.rate is None else f"-lr{self.rate:g}"
        return f"{self.method}{rate}-seed{self.seed}"

    def settings(self) -> Json:
        """All that is not a default, flat."""
        study = STUDIES[self.study]
        own = {} if self.rate is None else {"algorithm.lr": self.rate}
        recipe = read_recipe(find_recipe(study.recipe))
        said = changed(recipe, study.settings | study.methods[self.method] | own)
        return {key: value for key, value in flatten(said).items() if key != "name"}

    @property
    def digest(self) -> str:
        return short_hash([self.settings(), self.seed])

    @property
    def cost(self) -> float:
        """Client epochs."""
        said = self.settings()
        alone = said.get("federation.kind", "federated") != "federated"
        clients = 1 if alone else said.get("federation.clients", 5)
        return float(said["rounds"] * said.get("algorithm.local_epochs", 3) * clients)

    def read(self, records: Path) -> Json:
        """Its record; nothing if there is none of these settings."""
        return dict(Store(records).read(self.study, self.name, self.digest) or {})


def ends(record: Json) -> tuple[float, float]:
    """Success before the first round and after the last."""
    success = record["metrics"]["eval/success"][1]
    return success[0], success[-1]


def tuning(name: str, method: str, rate: float) -> list[Cell]:
    return [Cell(name, method, seed, rate) for seed in TUNING]


def chosen(name: str, method: str, records: Path) -> float | None:
    """The rate that ends best on the tuning seeds, once all of them were run."""
    rates = STUDIES[name].rates
    tried = {rate: [c.read(records) for c in tuning(name, method, rate)] for rate in rates}
    if not rates or not all(map(all, tried.values())):
        return None
    return max(tried, key=lambda rate: float(np.mean([ends(found)[1] for found in tried[rate]])))


def reported(name: str, method: str, records: Path) -> list[Cell]:
    """The runs of a row of the table; none before its rate is chosen."""
    rate = chosen(name, method, records)
    if STUDIES[name].rates and rate is None:
        return []
    return [Cell(name, method, seed, rate) for seed in SEEDS]


def cells(name: str, records: Path) -> Iterator[Cell]:
    """All that is to be run."""
    for method in STUDIES[name].methods:
        for rate in STUDIES[name].rates:
            yield from tuning(name, method, rate)
        yield from reported(name, method, records)
