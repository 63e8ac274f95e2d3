"""Entries of the tables of methods and worlds: where a module is, and what it needs.

Modules are imported when they are used, so `fedrl --help` loads neither JAX nor PyTorch, and a
missing extra is a sentence instead of a traceback.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from fedrl.core.types import UserError


@dataclass(frozen=True)
class Entry:
    module: str
    extra: str
    summary: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "control"  # of a world, and the one that a method plays: control, discrete, text


def look_up(table: Mapping[str, Entry], key: str, name: str) -> Entry:
    """The entry called `name`; `key` is the setting that asked for it."""
    if name not in table:
        raise UserError(f"{key} is {name!r}; {suggestion(name, table)}")
    return table[name]


def load(entry: Entry, key: str, name: str) -> ModuleType:
    """Import the entry's module; a package that is not installed names the extra to install."""
    try:
        return importlib.import_module(entry.module)
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"{key} = {name!r}", entry.extra) from error


def missing_extra(error: ModuleNotFoundError, what: str, extra: str) -> UserError:
    if error.name is not None and error.name.split(".")[0] == "fedrl":
        raise error  # our own bug, not the user's installation
    return UserError(f'{what} needs the package {error.name}: pip install "fedrl[{extra}]"')


def suggestion(wrong: str, right: Mapping[str, Any] | list[str]) -> str:
    """ "did you mean …?" when something is near, else the whole choice."""
    near = difflib.get_close_matches(wrong, list(right), n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return "choose from " + ", ".join(right)
