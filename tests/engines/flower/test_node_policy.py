"""What a node takes from recipes: every setting of every method and world is thought of."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.algorithms import METHODS
from fedrl.config.flag_parsing import fields
from fedrl.config.loading import find_recipe, read_recipe, recipes_folder, resolve
from fedrl.config.schema import SECTIONS, Config
from fedrl.core.registry import load
from fedrl.core.types import (
    Address,
    Assignment,
    CodeCall,
    CodeName,
    FilePath,
    ModelName,
    Word,
)
from fedrl.engines.flower.node import Refused
from fedrl.engines.flower.node_policy import Policy, check
from fedrl.envs import WORLDS

RECIPES = sorted(str(p.relative_to(recipes_folder())) for p in recipes_folder().glob("*/*.toml"))


def texts() -> Iterator[tuple[str, Any]]:
    """Every setting that is a text, or a list of them, and how its field is annotated."""
    classes = [(f"algorithm {n}", load(e, "algorithm", n).Settings) for n, e in METHODS.items()]
    classes += [(f"world {n}", load(e, "world", n).Settings) for n, e in WORLDS.items()]
    classes += [(cls.__module__, cls) for cls in (*SECTIONS, Config)]
    for name, cls in classes:
        hints = typing.get_type_hints(cls, include_extras=True)
        for key, kind in fields(cls).items():
            if kind is str or str in typing.get_args(kind):
                yield f"{name}.{key}", hints[key]


def test_every_text_says_what_it_names():
    """Else nodes take no other value of it than its default, and its users wonder why."""
    single = (Word, Address, Assignment, CodeName, CodeCall, FilePath, ModelName)
    known = (*single, *(tuple[hint, ...] for hint in single))
    assert len(list(texts())) >= 25
    assert [key for key, hint in texts() if hint not in known] == []


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_that_come_with_fedrl_are_taken(name: str, tmp_path: Path):
    """With their models where they say, in the node's folder."""
    config = resolve(read_recipe(find_recipe(name)), ["--engine", "workers"])
    if model := getattr(config.algorithm, "model", ""):
        (tmp_path / model).mkdir(parents=True)
    check(config, Policy(tmp_path))


@dataclass(frozen=True)
class Newer:
    """Settings of a method that nobody has told this module of."""

    name: str = "newer"
    reward_model: str = "none"
    shards: tuple[str, ...] = ()
    anything: Any = None
    seed: int = 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("reward_model", "gpt2"), ("shards", ("a",)), ("anything", "x"), ("name", "other")],
)
def test_a_text_that_says_nothing_is_only_taken_as_it_is_by_default(key, value, tmp_path: Path):
    config = resolve({"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}})
    check(dataclasses.replace(config, algorithm=Newer(seed=2**60)), Policy(tmp_path))
    changed = dataclasses.replace(config, algorithm=Newer(**{key: value}))
    with pytest.raises(Refused, match=rf"^algorithm\.{key}: this node does not know"):
        check(changed, Policy(tmp_path))
    check(changed, Policy(tmp_path, allowed=frozenset({"algorithm"})))
