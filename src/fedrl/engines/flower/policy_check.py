"""A recipe that came over the network against a node's policy: what it refuses, in lines.

A recipe is the coordinator's word, and a coordinator may lie. So a node refuses what would make its
client, or the others in its sum, do something else than their work (`[attack]`, `[faults]`), what
names methods, worlds, files and models that its owner did not put there or allow, what goes below
its floors (`clip`, `noise`, `secure`, `least_clients`), and numbers that are only good for filling
its memory. What its owner says himself, as settings after `--`, is never refused, and `allow` takes
a setting from recipes as it comes; floors hold against both.

Every setting is looked at, whatever the method and the world: a text is refused unless its field
says what it names (`types.Word`, `Assignment`, `CodeName`, `FilePath`, `ModelName`) and it is that.
A new setting is safe before anybody has thought of it here, and `setting_classes.py` asks that
somebody does. A server's `Address`, and code that is called with arguments (`CodeCall`), are the
owner's to say.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
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
    Word,
)
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower import fewest_updates
from fedrl.engines.flower.node_plan import OWN, Refused
from fedrl.engines.flower.owner_log import say
from fedrl.engines.flower.policy import ANY, Policy, in_toml
from fedrl.privacy import secure_aggregation

SWITCHES = ("attack.clients", "attack.share", "faults.clients")
"""What makes clients lie or fail; without them the rest of their tables does nothing."""
PER_CLIENT = ("algorithm.lam", "algorithm.client_steps")
"""What can be another for one client: of two secure sums that differ in nothing but one client's,
the difference is that client's."""
UNPROTECTED = ("privacy.reports", "privacy.seeded")
"""What takes away from noise and secure sums."""
LARGEST = 10_000_000
"""Of whole numbers: more rounds, tasks, features or steps than any recipe has."""
SMALLER = {"threads": 256, "workers": 256, "clients": 100_000}
"""The same for numbers of things that cost more."""
LONGEST = 2**18
"""Characters of a recipe; ours have some thousand."""
WORD = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.+:-]{0,99})?")
ASSIGNMENT = re.compile(rf"[A-Za-z_]\w{{0,49}}=-?{WORD.pattern}", re.ASCII)
NOT_HERE = "opens only models of its own folder, and has none of this name there"
"""Whether it is missing or is nobody's to open: which of both is told to nobody."""
NOT_NAMED = "opens only models that its owner names (models)"
LONGEST_VALUE = 100
"""Characters of a recipe's setting in the node's own logs."""
STRANGE = frozenset('\\:%$*?"<>|\x7f')
"""In no path of a recipe: what some system or library takes for another place than the text."""


@dataclass(frozen=True)
class Node:
    """What the check must know of a node: its folder, the keys of its owner's own settings, whether
    it knows its peers, whose CA it trusts, and files that are nobody's to read (its key)."""

    folder: Path
    own: frozenset[str] = frozenset()
    peers: bool = False
    coordinator: str = ""
    private: tuple[Path, ...] = ()


class Refusal(typing.NamedTuple):
    """A line that the coordinator is told, and what the node's owner reads beside it."""

    line: str
    own: str = ""


class Setting(typing.NamedTuple):
    key: str
    hint: Any  # with what its text names
    default: Any
    value: Any


def settings(config: Any, prefix: str = "") -> Iterator[Setting]:
    """Every key of a configuration, dotted."""
    kind: type = type(config)
    hints = _hints(kind)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from settings(value, f"{prefix}{field.name}.")
        else:
            yield Setting(f"{prefix}{field.name}", hints[field.name], field.default, value)


@cache
def _hints(settings_class: type) -> dict[str, Any]:
    return typing.get_type_hints(settings_class, include_extras=True)


def check(config: Config, policy: Policy, node: Node) -> None:
    """Raise `Refused` with all lines of `refusals`, if there are any. The node's own log has what
    is missing here: its owner should not allow what only has to be copied."""
    if found := list(_refusals(config, policy, node)):
        for place in missing_models(config, policy, node):
            say(f"there is no {place}: copy the coordinator's model there")
        own = "; ".join(one.own for one in found if one.own)
        raise Refused("; ".join(one.line for one in found), own)


def refusals(config: Config, policy: Policy, node: Node) -> list[str]:
    """Why this node does not take this recipe: a line each, with the setting and the policy's key.
    Nothing of the node's own files is told."""
    return [one.line for one in _refusals(config, policy, node)]


def _refusals(config: Config, policy: Policy, node: Node) -> Iterator[Refusal]:
    yield from _names(config, policy, node)
    yield from _settings(config, policy, node)
    yield from _floors(config, policy, node)


def _both(value: object, policy: Policy, key: str) -> str:
    """What the recipe has and what the policy, for the node's own logs."""
    has = one_line(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return f"recipe: {has[:LONGEST_VALUE]}; policy: {in_toml({key: getattr(policy, key)})}"


def trusts(policy: Policy, node: Node, key: str) -> bool:
    return key in node.own or bool({key, key.split(".")[0]} & {*policy.allow})


def _names(config: Config, policy: Policy, node: Node) -> Iterator[Refusal]:
    if policy.coordinators and node.coordinator not in policy.coordinators:
        yield Refusal("coordinator: this node answers others than this one (coordinators)")
    for key, name, allowed in (
        ("algorithm.name", config.algorithm.name, policy.methods),
        ("world.name", config.world.name, policy.worlds),
    ):
        if ANY not in allowed and name not in allowed and key not in node.own:
            which = "methods" if key == "algorithm.name" else "worlds"
            line = f"{key}: this node runs only {which} that its owner names: ask its "
            line += f"owner to add this one ({which})"
            yield Refusal(line, _both(name, policy, which))


def _settings(config: Config, policy: Policy, node: Node) -> Iterator[Refusal]:
    common = terms(config)
    for setting in settings(config):
        if trusts(policy, node, setting.key):
            continue
        if setting.key in PER_CLIENT and common is not None and len(set(setting.value)) > 1:
            yield _refusal(setting, "adds up only with clients that all do the same", policy)
            continue
        if setting.key in SWITCHES and setting.value:
            yield _refusal(setting, "rehearses no attacks and faults", policy)
            continue
        many = isinstance(setting.value, tuple)
        hint = typing.get_args(setting.hint)[0] if many else setting.hint
        for value in setting.value if many else (setting.value,):
            why = _objection(setting.key, hint, value, policy, node)
            if value != setting.default and why:
                yield _refusal(setting, why, policy)
                break


def _refusal(setting: Setting, why: str, policy: Policy) -> Refusal:
    """What is only missing is mended by copying it, not by allowing more."""
    key = setting.key
    if why == NOT_HERE:
        cure = "its owner copies the coordinator's model into it"
        return Refusal(f"{key}: this node {why}: {cure}", _both(setting.value, policy, "models"))
    named = "models" if why == NOT_NAMED else "allow"
    line = f"{key}: this node {why}, unless its owner says so (allow, or --allow {key})"
    return Refusal(line, _both(setting.value, policy, named))


def own_noise(config: Config, peers: bool) -> float:
    """The noise multiplier of what leaves, as far as nodes add it: of a sum whose other clients may
    be the coordinator's invention, this node's own part."""
    chosen, common = config.privacy, terms(config)
    if chosen.seeded or (common is None and chosen.where != "local"):
        return 0.0
    if common is None or peers:
        return chosen.noise
    return secure_aggregation.part(chosen.noise, common.needed)


def _floors(config: Config, policy: Policy, node: Node) -> Iterator[Refusal]:
    chosen, common = config.privacy, terms(config)
    if fewest_updates.fewest(config) < policy.least_clients:
        yield Refusal(_too_few(config, policy.least_clients))
    if policy.secure and common is None:
        clip = "" if chosen.clip else f"--privacy.clip {policy.clip or 1:g} "
        yield Refusal(
            "privacy.secure: this node sends updates only into secure sums: run it with "
            f"{clip}--privacy.secure true (secure)",
            _both("privacy.secure = false", policy, "secure"),
        )
    if policy.clip and not 0 < chosen.clip <= policy.clip:
        yield Refusal(
            f"privacy.clip is {chosen.clip:g}: this node's updates are at most {policy.clip:g} "
            "long (clip)"
        )
    noise = own_noise(config, node.peers)
    if noise < policy.noise:
        yield Refusal(
            f"privacy.noise: {noise:.4g} of this recipe's is noise that this node can be sure of, "
            f"and its floor is {policy.noise:g} (noise)"
        )
    if policy.epsilon and not noise:
        yield Refusal(
            "privacy.noise: this node counts its own ε, and its update would have none (epsilon)"
        )
    floors = [key for key in ("secure", "noise", "epsilon") if getattr(policy, key)]
    for key in UNPROTECTED if floors else ():
        if getattr(chosen, key.partition(".")[2]) and not trusts(policy, node, key):
            yield Refusal(
                f"{key}: this node's owner asks for protection that it takes away ({floors[0]})"
            )


def _too_few(config: Config, least: int) -> str:
    """With the quorum that would do, where one would."""
    together, count = fewest_updates.fewest(config), config.combined
    plain = not config.privacy.secure
    share = fewest_updates.quorum_for(config, least) if plain else None
    if share is None:
        most = fewest_updates.of(config, count) if plain else together
        return (
            f"federation.clients: the updates of {most} clients may become one in this recipe, "
            f"and this node's own least number is {least} (least_clients)"
        )
    return (
        f"federation.quorum {config.federation.quorum:g} of {count} clients lets {together} "
        f"update{'s' * (together != 1)} become the model: this node's least number, {least}, needs "
        f"--federation.quorum {share:g} (least_clients)"
    )


def _objection(key: str, hint: Any, value: Any, policy: Policy, node: Node) -> str:
    """Why this value of a setting is not taken."""
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
        return "" if readable(value, policy, node) else "opens only files of its own folder"
    if hint == ModelName:
        return _model(value, policy, node)
    if hint is int and not name.endswith("seed"):
        most = SMALLER.get(name, LARGEST)
        return "" if abs(value) <= most else f"takes numbers up to {most:,}"
    plain = (int, float, bool, float | None)
    known = hint in plain or typing.get_origin(hint) is Literal
    return "" if known else "does not know what this names"


def _model(value: str, policy: Policy, node: Node) -> str:
    if value in policy.models and value != ANY:
        return ""
    held = readable(value, policy, node) and os.path.exists(node.folder / value)
    if ANY in policy.models:
        return "" if held else NOT_HERE
    return NOT_NAMED


def missing_models(config: Config, policy: Policy, node: Node) -> list[Path]:
    """Where models would be taken from the node's folder, and are not there."""
    return [
        node.folder / s.value
        for s in settings(config)
        if s.hint == ModelName
        and s.value not in ("", s.default)
        and ANY in policy.models
        and not trusts(policy, node, s.key)
        and readable(s.value, policy, node)
        and not os.path.exists(node.folder / s.value)
    ]


def fetches(config: Config, policy: Policy, node: Node) -> bool:
    """Whether a model may be got from elsewhere: one that the owner has named, or takes."""
    return any(
        trusts(policy, node, s.key) or (s.value != ANY and s.value in policy.models)
        for s in settings(config)
        if s.hint == ModelName
    )


def readable(text: str, policy: Policy, node: Node) -> bool:
    """Whether a path of a recipe leads to something in the node's folder that is not the node's
    own, or into a folder that its owner named by an absolute path."""
    if not text:
        return True
    plain = unicodedata.normalize("NFKC", text)  # some systems take "．" for "."
    parts = plain.split("/")
    if not text.isprintable() or STRANGE & set(plain) or PureWindowsPath(plain).is_reserved():
        return False
    if any(part.startswith("~") for part in parts):
        return False
    if any(len(part) > 1 and not part.rstrip(". ") for part in parts):  # "..", and "... " somewhere
        return False
    try:
        home = node.folder.resolve()
        place = (home / text).resolve()  # where links lead to
        named = [Path(folder).resolve() for folder in policy.folders]
        private = [path.resolve() for path in node.private]
    except (OSError, RuntimeError, ValueError):
        return False
    if any(secret.is_relative_to(place) or place.is_relative_to(secret) for secret in private):
        return False
    if place.is_relative_to(home):
        return not plain.startswith("/") and place != home and _is_recipes(place.relative_to(home))
    return text.startswith("/") and any(place.is_relative_to(folder) for folder in named)


def _is_recipes(place: Path) -> bool:
    """Whether something in the node's folder is not the node's own."""
    first = place.parts[0].lower()
    return not first.startswith(".") and first.split(".")[0] not in OWN
