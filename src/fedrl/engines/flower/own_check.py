"""The part of `fedrl flower check` that lies on the node's machine: nobody is asked.

folder     the node can write there
policy     it can be read, names this coordinator, and what in it differs from the defaults
data       what its folder holds; whether the coordinator's model was copied
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedrl.config.parts import TABLES
from fedrl.core.registry import only_packages
from fedrl.core.types import UserError
from fedrl.engines.flower import key_folder, keys, policy
from fedrl.privacy.secure_aggregation import public_keys

LEAST_DISK = 2**30
MODEL = "model"
HUGGING_FACE = re.compile(r"[\w-][\w.-]*/[\w.-]+")
"""What is surely meant for an id there, and no folder."""
MOST_NAMED = 8
"""Of what lies in the data's folder."""


class Finding(NamedTuple):
    """`doubtful` is what may be as it should be: a person looks at it."""

    good: bool
    what: str
    doubtful: bool = False


@dataclass(frozen=True)
class Joining:
    """A node as it would be started."""

    superlink: str
    ca: Path | None = None
    key: Path | None = None
    folder: Path | None = None
    policy: Path | None = None
    data: Path | None = None
    client: int | None = None

    @property
    def name(self) -> str:
        """As its key's public half has it, where that lies beside it; else north.key is north."""
        if self.key is None:
            return "a node without a key"
        with contextlib.suppress(OSError, public_keys.Malformed):
            for named in public_keys.read(self.key.with_name(self.key.name + ".pub"))[-1:]:
                if named.name:
                    return named.name
        return self.key.name.removesuffix(".key")


def own(node: Joining) -> Iterator[Finding]:
    """What lies on this machine."""
    for step in (_folder, _policy, _data, _model):
        try:
            found = step(node)
        except UserError as error:
            yield Finding(False, str(error))
        else:
            if isinstance(found, Finding):
                yield found
            elif found:
                yield Finding(True, found)
        if step is _policy:
            with contextlib.suppress(UserError):  # which it has told
                yield from _doubts(node)


def _folder(node: Joining) -> str:
    if node.folder is None:
        return ""
    place = node.folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"--folder {node.folder}: {place} is no folder that you can write to")
    free = shutil.disk_usage(place).free
    if free < LEAST_DISK:
        raise UserError(f"--folder {node.folder}: only {free / 2**20:.0f} MiB of disk are free")
    return f"{node.folder} can be written, {free / 2**30:.0f} GiB are free"


def _policy(node: Joining) -> str:
    if (file := _policy_file(node)) is None:
        return ""
    beside = node.key.parent / policy.FILE if node.key else file
    if not file.is_file() and beside.is_file():
        raise UserError(f"{beside} lies beside the key, and the node reads {file}: move it there")
    if node.key and node.folder and not node.policy:
        key_folder.require(node.key, node.folder)
    if not file.is_file():
        return f"there is no {file}: the defaults hold (docs/policy.md)"
    rules = policy.read(file)
    if node.ca and rules.coordinators:
        called = keys.coordinator_digest(node.ca)
        if called not in rules.coordinators:
            raise UserError(f"coordinators in {file} do not name that of {node.ca}, {called}")
        return f"{file} allows this coordinator, {called[:16]}"
    return f"{file} can be read; it names no coordinator"


def _doubts(node: Joining) -> Iterator[Finding]:
    """What a policy can say and mean something else: what differs from the defaults, and names of
    nothing that is here."""
    file = _policy_file(node)
    if file is None:
        return
    rules = policy.read(file)
    said = {key: value for key, value in rules.said().items() if key != "coordinators"}
    if said:
        yield _note(f"{file.name} differs from the defaults: {policy.in_toml(said)}")
    for key, table in (("methods", "algorithm"), ("worlds", "world")):
        for name in getattr(rules, key):
            try:
                with only_packages(rules.packages):
                    _ = name == policy.ANY or TABLES[table].find(name, key)
            except UserError as error:
                yield _note(f"{file.name} names nothing that is here: {error}")
    for name in rules.models if node.folder else ():
        known = name == policy.ANY or HUGGING_FACE.fullmatch(name)
        if node.folder and not known and not (node.folder / name).exists():
            yield _note(
                f"{file.name}: models names {name}, and there is no {node.folder / name}: a model "
                "of this name would be fetched from Hugging Face"
            )


def _note(what: str) -> Finding:
    return Finding(True, what, doubtful=True)


def _policy_file(node: Joining) -> Path | None:
    if node.policy is not None or node.folder is None:
        return node.policy
    return node.folder / policy.FILE


def _data(node: Joining) -> str | Finding:
    """With what it holds: a folder too high or too low is seen by that."""
    if node.data is None:
        return ""
    if not node.data.is_dir():
        raise UserError(f"--data {node.data} is no folder")
    held = sorted(
        f"{path.name}/" if path.is_dir() else path.name
        for path in node.data.iterdir()
        if not path.name.startswith(".")
    )
    if not held:
        return _note(f"--data {node.data} is empty")
    named = ", ".join(held[:MOST_NAMED]) + (", …" if held[MOST_NAMED:] else "")
    return f"{node.data} holds {named}: what a recipe names (world.source) must lie in it"


def _model(node: Joining) -> str | Finding:
    """Recipes of language models name a folder in the node's own; most call it so."""
    if node.folder is None or (node.folder / MODEL).exists():
        return ""
    with contextlib.suppress(UserError):  # `_policy` has told it
        file = node.policy or node.folder / policy.FILE
        if policy.ANY not in policy.read(file).models:
            return ""
    place = node.folder / MODEL
    return _note(
        f"there is no {place}: for a language model copy the coordinator's there (cp -r "
        f"{MODEL} {place})"
    )
