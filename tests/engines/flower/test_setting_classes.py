"""Every setting that a recipe can have is somebody's business on a node, and nobody forgot one."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.aggregation.rules import AGGREGATORS
from fedrl.algorithms import METHODS
from fedrl.config import parts
from fedrl.config.schema import SECTIONS, Config
from fedrl.core.types import Address, Assignment, CodeCall, CodeName, FilePath, ModelName
from fedrl.engines.flower import policy_check
from fedrl.engines.flower.setting_classes import (
    FREE,
    GOVERNED,
    LOCAL,
    METHOD,
    WORLD,
    class_of,
)
from fedrl.envs import WORLDS

NAMING = (Address, Assignment, CodeCall, CodeName, FilePath, ModelName)


def walk() -> Iterator[tuple[str, Any]]:
    """Every key of every method, world and rule that comes with fedrl, and how it is annotated."""
    tables = {"algorithm": METHODS, "world": WORLDS, "aggregate": AGGREGATORS}
    classes = [(table, parts.find(table, n).settings) for table, t in tables.items() for n in t]
    hints = typing.get_type_hints(Config, include_extras=True)
    classes += [(key, hint) for key, hint in hints.items() if hint in SECTIONS]
    for table, cls in classes:
        inner = typing.get_type_hints(cls, include_extras=True)
        yield from ((f"{table}.{f.name}", inner[f.name]) for f in dataclasses.fields(cls))
    yield from ((key, hint) for key, hint in hints.items() if key not in {t for t, _ in classes})


def test_every_setting_is_classified():
    """A new one fails here: say in setting_classes.py whose business it is on a node."""
    keys = dict.fromkeys(key for key, _ in walk())
    assert len(keys) > 200
    assert [key for key in keys if class_of(key) is None] == []


def test_no_class_names_a_setting_that_there_is_not():
    keys = {key for key, _ in walk()}
    listed = FREE | GOVERNED | LOCAL
    listed |= {f"algorithm.{name}" for name in METHOD} | {f"world.{name}" for name in WORLD}
    assert sorted(listed - keys) == []
    assert not GOVERNED & LOCAL


def test_what_names_files_models_code_or_servers_is_not_free():
    """By the types of all settings, so that none is free by a mistake in the list."""
    naming = {
        key
        for key, hint in walk()
        for inner in (hint, *typing.get_args(hint)[:1])
        if inner in NAMING
    }
    assert len(naming) >= 15
    assert sorted(key for key in naming if class_of(key) == "free") == []


def test_what_the_check_looks_at_by_name_is_governed():
    named = (*policy_check.SWITCHES, *policy_check.PER_CLIENT, *policy_check.UNPROTECTED)
    assert {class_of(key) for key in named} == {"governed"}
