"""What may run on a node's data: `policy.toml` in the node's folder, its organisation's own word.

    defaults (strict)  <  policy.toml  <  flags of `fedrl flower node`

A flag goes over the key of its name; of lists (`--allow`, `--allow-package`) both count. Settings
after `--` go over those of every recipe, and what comes of both is held against the policy: no
recipe goes below a floor, and neither do they. A recipe that does not keep to it is refused, never
changed (`policy_check.py`). The file is read anew for every message (`current_policy.py`): a
change holds from the next job on, and one that cannot be read lets nothing through.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tomli_w

from fedrl.config.flag_parsing import checked, fields, nearest
from fedrl.config.schema import Config
from fedrl.core.limits import not_negative
from fedrl.core.private_files import create_private
from fedrl.core.types import Json, UserError

FILE = "policy.toml"
ANY = "any"
YES_OR_NO = re.compile(
    r"^\s*(\w+)\s*=\s*([Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF|T(?:rue|RUE)|F(?:alse|ALSE))\b", re.M
)
DIGEST = re.compile(r"[0-9a-f]{64}")
LISTS = ("allow", "packages")
"""Keys of which the file's and the command line's count together."""


class Unreadable(UserError):
    """A node's policy as it is now cannot be used: with what is wrong, for its owner."""


@dataclass(frozen=True)
class Policy:
    """A node's own rules. What is not said is strict: no attacks, faults, addresses, code or models
    from elsewhere, and no path that leads out of the node's folder."""

    # Coordinators that may ask: SHA-256 of their CA's public key, as `fedrl flower audit` and the
    # node's log say it. Empty: the one whose ca.pem the node is started with.
    coordinators: tuple[str, ...] = ()
    # What a new recipe waits for, beside all below. "none": nothing. "person": until somebody here
    # has read it and said yes (`fedrl flower approve`). "pinned": it must be one of `pinned`.
    approval: Literal["none", "person", "pinned"] = "none"
    # Recipes that need nobody's yes: SHA-256 of each, as audit logs and `fedrl flower approve` say.
    pinned: tuple[str, ...] = ()
    # Methods that may run, by their names in recipes. "any": those of fedrl and of `packages`.
    methods: tuple[str, ...] = (ANY,)
    # Worlds, likewise.
    worlds: tuple[str, ...] = (ANY,)
    # Installed packages of others whose methods, worlds and reward functions a recipe may name.
    packages: tuple[str, ...] = ()
    # Models that a recipe may name, spelled as it does. "any": those in the node's folder. An id of
    # Hugging Face that is named here is fetched if it is not there.
    models: tuple[str, ...] = (ANY,)
    # Folders beside the node's own, by absolute paths, whose files a recipe may name.
    folders: tuple[str, ...] = ()
    # Settings or tables of recipes that are taken as they come ("algorithm.model", "faults").
    allow: tuple[str, ...] = ()
    # Least number of clients whose updates may become one, also if others fail: with 2, a recipe
    # of 2 clients must set federation.quorum to 1, and one absent member then stops the run. A
    # secure sum has 3 at least. This bounds what the model tells of one client, not what the
    # coordinator sees: it has read each update that was sent, also of a run that stops. Against
    # that: secure.
    least_clients: int = 1
    # Only secure sums: no update leaves as it is. Started with --peers, a node does so anyway.
    secure: bool = False
    # Longest update that leaves: a recipe must set privacy.clip to no more. 0 asks for none.
    clip: float = 0.0
    # Least noise multiplier (privacy.noise) of what leaves, counting only noise that nodes add, and
    # of a sum, without --peers, only this node's own part of it. 0 asks for none.
    noise: float = 0.0
    # ε for the node's lifetime, over all runs and coordinators: counted on its disk before each
    # answer leaves, and nothing beyond it. 0 counts nothing.
    epsilon: float = 0.0
    # δ of this ε.
    delta: float = 1e-5
    # This client's own data (--data), by an absolute path or one from the node's folder.
    data: str = ""
    # Keep the recipe and the last model that was sent, for `fedrl joining` (--keep-model).
    keep_model: bool = False
    # Let secure sums be of other clients than before (--regroup).
    regroup: bool = False

    def __post_init__(self) -> None:
        not_negative(self, "", "clip", "noise", "epsilon")
        for key in self.allow:
            if not _is_setting(key):
                raise UserError(f"allow: {key!r} is no setting or table of recipes")
        for key in ("coordinators", "pinned"):
            for text in getattr(self, key):
                if not DIGEST.fullmatch(text):
                    raise UserError(f"{key}: {text!r} is no SHA-256, 64 digits of 0-9a-f")
        for folder in self.folders:
            if not Path(folder).is_absolute():
                raise UserError(f"folders: {folder!r} is no absolute path")
        if self.least_clients < 1:
            raise UserError(f"least_clients is {self.least_clients}; it must be at least 1")
        if not 0 < self.delta < 1:
            raise UserError(f"delta is {self.delta}; it must lie in (0, 1)")
        if self.approval == "pinned" and not self.pinned:
            raise UserError('approval is "pinned", and pinned names no recipe')

    @property
    def digest(self) -> str:
        told = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    def said(self) -> Json:
        """What differs from the defaults."""
        pairs = {f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(self)}
        differing = {key: value for key, (value, default) in pairs.items() if value != default}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in differing.items()}


@dataclass(frozen=True)
class Flags:
    """What the command line says of a policy's keys; None says nothing."""

    least_clients: int | None = None
    allow: Sequence[str] = ()
    packages: Sequence[str] = ()
    data: str | None = None
    keep_model: bool | None = None
    regroup: bool | None = None

    def __post_init__(self) -> None:
        for key in self.allow:
            if not _is_setting(key):
                raise UserError(f"--allow {key}: no setting or table of recipes has this name")
        if self.least_clients is not None and self.least_clients < 1:
            raise UserError(f"--least-clients is {self.least_clients}; it must be at least 1")

    def over(self, policy: Policy) -> Policy:
        said = {k: v for k, v in vars(self).items() if v is not None and k not in LISTS}
        said |= {k: (*getattr(policy, k), *getattr(self, k)) for k in LISTS}
        return replace(policy, **said)


def _is_setting(key: str) -> bool:
    """Of recipes, or one of their tables; those of methods and worlds are not known here."""
    return key.split(".")[0] in {field.name for field in dataclasses.fields(Config)}


def read(path: Path) -> Policy:
    """The defaults where there is no such file."""
    text = text_of(path)
    return Policy() if text is None else parsed(text, path)


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def parsed(text: str, path: Path) -> Policy:
    """One or two lines on whatever is wrong with it."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}{_small_letters(text)}") from error
    hints = fields(Policy)
    values: Json = {}
    try:
        for key, value in table.items():
            if key not in hints:
                raise UserError(f"unknown key {key}; {nearest(key, list(hints))}")
            values[key] = checked(value, hints[key], key)
        return Policy(**values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _small_letters(text: str) -> str:
    """Of the first line that has a word which is none in TOML."""
    found = YES_OR_NO.search(text)
    return f"; {found[1]} is {found[2]}: say true or false, in small letters" if found else ""


def in_toml(said: Mapping[str, object]) -> str:
    """What `Policy.said` says, in a line, as one would write it into the file."""
    return ", ".join(f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in said.items())


def template(**said: object) -> str:
    """A policy file with all its keys: the defaults behind #, and what is `said`."""
    from fedrl.config.help import comments

    policy, meaning = Policy(**said), comments(Policy)  # type: ignore[arg-type]
    lines = [
        "# What may run on this node's data. Lines of # and a key show its default: take the #",
        "# away to say otherwise. docs/policy.md explains each; flags of `fedrl flower node` go",
        "# over this file. It is read anew for every job.",
    ]
    for key in fields(Policy):
        value = getattr(policy, key)
        written = tomli_w.dumps({key: list(value) if isinstance(value, tuple) else value})
        shown = " ".join(line.strip() for line in written.splitlines()).replace(", ]", "]")
        lines += ["", *textwrap.wrap(meaning[key], 96, initial_indent="# ", subsequent_indent="# ")]
        lines += [("" if key in said else "#") + shown.replace("[ ", "[").replace(",]", "]")]
    return "\n".join(lines) + "\n"


def write_template(folder: Path, **said: object) -> Path | None:
    """A commented policy for a node's folder; None if it has one."""
    path = folder / FILE
    if path.exists():
        return None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    create_private(path, template(**said).encode())
    return path
