"""What a node takes from a recipe that came over the network, and what it refuses.

A recipe is the coordinator's word, and a coordinator may lie. So a node refuses what would make its
client, or the others in its sum, do something else than their work (`[attack]`, `[faults]`), what
names files and models that its owner did not put into the node's folder, and numbers that are only
good for filling its memory. What its owner says himself, as flags after `--`, is never refused, and
`--allow KEY` takes a setting from recipes as it comes.

Every setting is looked at, whatever the method and the world: a text is refused unless its field
says what it names (`types.Word`, `Assignment`, `CodeName`, `FilePath`, `ModelName`) and it is that.
A new setting is safe before anybody has thought of it here. A server's `Address`, and code that is
called with arguments (`CodeCall`), are the owner's to say.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

from fedrl.config.build import terms
from fedrl.config.schema import Config
from fedrl.core.types import (
    Address,
    Assignment,
    CodeCall,
    CodeName,
    FilePath,
    ModelName,
    UserError,
    Word,
)
from fedrl.engines.flower.node import OWN, Refused

SWITCHES = ("attack.clients", "attack.share", "faults.clients")
"""What makes clients lie or fail; without them the rest of their tables does nothing."""
PER_CLIENT = ("algorithm.lam",)
"""What can be another for one client: of two secure sums that differ in nothing but one client's,
the difference is that client's."""
LARGEST = 10_000_000
"""Of whole numbers: more rounds, tasks, features or steps than any recipe has."""
SMALLER = {"threads": 256, "workers": 256, "clients": 100_000}
"""The same for numbers of things that cost more."""
WORD = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.+:-]{0,99})?")
ASSIGNMENT = re.compile(rf"[A-Za-z_]\w{{0,49}}=-?{WORD.pattern}", re.ASCII)
STRANGE = frozenset('\\:%$*?"<>|\x7f')
"""In no path of a recipe: what some system or library takes for another place than the text."""


@dataclass(frozen=True)
class Policy:
    """A node's own rules: where its files are, what its owner has said, whom it computes with.

    `own` are the keys of its flags, `allowed` keys and tables of recipes that it takes as they are.
    `least` is the smallest number of clients whose updates may become one. `packages` are those of
    others whose methods and worlds it runs, if they are installed.
    """

    folder: Path
    own: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    least: int = 1
    packages: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        tables = {field.name for field in dataclasses.fields(Config)}
        for key in self.allowed:
            if key.split(".")[0] not in tables:
                raise UserError(f"--allow {key}: no setting or table of recipes has this name")
        if self.least < 1:
            raise UserError(f"--least-clients is {self.least}; it must be at least 1")

    def trusts(self, key: str) -> bool:
        return key in self.own or bool({key, key.split(".")[0]} & self.allowed)


class Setting(typing.NamedTuple):
    key: str
    hint: Any  # with what its text names
    default: Any
    value: Any


def settings(config: Any, prefix: str = "") -> Iterator[Setting]:
    """Every key of a configuration, dotted."""
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from settings(value, f"{prefix}{field.name}.")
        else:
            yield Setting(f"{prefix}{field.name}", hints[field.name], field.default, value)


def check(config: Config, policy: Policy) -> None:
    """Raise `Refused`, with the key, for the first setting that this node does not take."""
    common = terms(config)
    for setting in settings(config):
        if policy.trusts(setting.key):
            continue
        if setting.key in PER_CLIENT and common is not None and len(set(setting.value)) > 1:
            raise _refused(setting.key, "adds up only with clients that all do the same")
        if setting.key in SWITCHES and setting.value:
            raise _refused(setting.key, "rehearses no attacks and faults")
        many = isinstance(setting.value, tuple)
        hint = typing.get_args(setting.hint)[0] if many else setting.hint
        for value in setting.value if many else (setting.value,):
            if value != setting.default and (why := _objection(setting.key, hint, value, policy)):
                raise _refused(setting.key, why)
    together = config.combined if common is None else common.needed
    if together < policy.least:
        raise Refused(
            f"federation.clients: the updates of {together} clients may become one in this recipe, "
            f"and this node's own least number is {policy.least} (--least-clients)"
        )


def _refused(key: str, why: str) -> Refused:
    return Refused(f"{key}: this node {why}, unless its owner says so (--allow {key})")


def _objection(key: str, hint: Any, value: Any, policy: Policy) -> str:
    """Why this value of a setting is not taken; nothing of the node's own files is told."""
    name = key.rpartition(".")[2]
    if hint == Word:
        return "" if WORD.fullmatch(value) else "takes only plain words"
    if hint == Assignment:
        return "" if ASSIGNMENT.fullmatch(value) else "takes only name=value, of plain words"
    if hint == Address:
        return "calls only servers that its owner names" if value else ""
    if hint == CodeName:  # whose code it is, `node_recipes.configuration` has asked
        return "" if WORD.fullmatch(value) else "takes only plain names of code"
    if hint == CodeCall:
        return "calls only code that its owner names"
    if hint == FilePath:
        return "" if _inside(value, policy.folder) else "opens only files of its own folder"
    if hint == ModelName:
        held = _inside(value, policy.folder) and os.path.exists(policy.folder / value)
        return "" if held else "opens only models of its own folder"
    if hint is int and not name.endswith("seed"):
        most = SMALLER.get(name, LARGEST)
        return "" if abs(value) <= most else f"takes numbers up to {most:,}"
    plain = (int, float, bool, float | None)
    known = hint in plain or typing.get_origin(hint) is Literal
    return "" if known else "does not know what this names"


def models(config: Config) -> list[str]:
    """Keys that name models."""
    return [setting.key for setting in settings(config) if setting.hint == ModelName]


def _inside(text: str, folder: Path) -> bool:
    """Whether a path of a recipe leads to something in the folder, which is not the node's own."""
    if not text:
        return True
    plain = unicodedata.normalize("NFKC", text)  # some systems take "．" for "."
    parts = plain.split("/")
    if not text.isprintable() or STRANGE & set(plain) or PureWindowsPath(plain).is_reserved():
        return False
    if plain.startswith("/") or any(part.startswith("~") for part in parts):
        return False
    if any(len(part) > 1 and not part.rstrip(". ") for part in parts):  # "..", and "... " somewhere
        return False
    try:
        home = folder.resolve()
        place = (home / text).resolve()  # where links lead to
    except (OSError, RuntimeError, ValueError):
        return False
    if not place.is_relative_to(home) or place == home:
        return False
    first = place.relative_to(home).parts[0].lower()
    return not first.startswith(".") and first.split(".")[0] not in OWN
