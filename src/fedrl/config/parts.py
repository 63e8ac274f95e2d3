"""What a name in a recipe stands for, wherever it comes from: settings, kinds, a maker.

One that comes with fedrl is a module with `Settings` and `build` or `World`; one from outside is a
class with `Settings`, a frozen dataclass, and `kinds`. Both are made by a call (`OwnWorld` instead
of `World`, where a module has it, for a folder that is a client's own):

    method(settings, world, rounds, client_env_ids)        world(settings, clients, seed)

A rule of aggregation is a function with needs and settings of its own (`aggregation/rule.py`).
`packages` says which packages from outside a run uses, in which version and with which code.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from fedrl.aggregation import rules
from fedrl.aggregation.rules import AGGREGATORS
from fedrl.algorithms import METHODS
from fedrl.clients.attacks import ATTACKS
from fedrl.config.flag_parsing import sayable
from fedrl.config.near_hooks import tell_near_hooks
from fedrl.core.registry import Entry, code, fingerprint, load, missing_extra
from fedrl.core.types import CodeCall, CodeName, UserError, Word
from fedrl.envs import WORLDS
from fedrl.envs.prompts.rewards import REWARDS
from fedrl.envs.prompts.settings import Settings as Prompts

TABLES = {
    "algorithm": METHODS,
    "world": WORLDS,
    "aggregate": AGGREGATORS,
    "attack": ATTACKS,
    "reward": REWARDS,
}
"""By the table of a recipe whose `name`, or `kind`, they explain; `reward` is a world's setting."""

PARAMETERS = {
    "algorithm.name": "settings, world, rounds, client_env_ids",
    "world.name": "settings, clients, seed",
}
"""What the maker of one is given, by the words of the documentation."""


@dataclass(frozen=True)
class Part:
    """A method, a world or a rule, loaded. `make` makes it, or says which extra is missing."""

    name: str
    entry: Entry
    settings: type
    maker: Callable[..., Any]
    kinds: tuple[str, ...]
    defaults: Mapping[str, Any]
    own: Callable[..., Any] | None = None
    """What opens a world of a folder of one's own, where that is another maker."""

    def make(self, key: str, *arguments: Any, own: bool = False) -> Any:
        maker = self.own if own and self.own is not None else self.maker
        if self.entry.outside and key in PARAMETERS:
            _require_parameters(maker, f"{key} = {self.name!r}", PARAMETERS[key], arguments)
        try:
            return maker(*arguments)
        except ModuleNotFoundError as error:
            raise missing_extra(error, f"{key} = {self.name!r}", self.entry.extra) from error


def _require_parameters(
    maker: Callable[..., Any], what: str, named: str, given: tuple[object, ...]
) -> None:
    try:
        inspect.signature(maker).bind(*given)
    except TypeError as error:
        raise UserError(f"{what} is made with ({named}): {error}") from None


def method(name: str) -> Part:
    return find("algorithm", name)


def world(name: str) -> Part:
    return find("world", name)


def find(table: str, name: str) -> Part:
    """The part that a recipe's `[table] name` stands for."""
    names = TABLES[table]
    entry = names.find(name)
    what = f"{names.key} = {name!r}"
    if names is AGGREGATORS:
        rule = rules.find(name)
        return Part(name, entry, _named(_settings(rule, what)), rule, (), {})
    thing = load(entry, names.key, name)
    if isinstance(thing, ModuleType):
        maker = thing.World if names is WORLDS else thing.build
        own = getattr(thing, "OwnWorld", None)
        return Part(name, entry, thing.Settings, maker, entry.kinds, entry.defaults, own)
    settings, kinds = _settings(thing, what), _kinds(thing, what)
    if lacking := sorted(getattr(thing, "__abstractmethods__", ())):
        raise UserError(f"{what} must say {', '.join(lacking)}: spelled so, in the class or a base")
    if entry.outside and inspect.isclass(thing):
        _require_heir(thing, settings, what)
        tell_near_hooks(table, thing, what)
    defaults = {**getattr(thing, "defaults", {}), **entry.defaults}
    return Part(name, entry, _named(settings), thing, kinds, defaults)


def _settings(thing: Any, what: str) -> type:
    """The settings of what a name stands for, or what they lack in one line."""
    settings = getattr(thing, "Settings", None)
    if not (inspect.isclass(settings) and dataclasses.is_dataclass(settings)):
        raise UserError(f"{what} has no Settings: a frozen dataclass, a default for each field")
    if wrong := _unsayable(settings):
        raise UserError(f"{what}{wrong}")
    return settings


@cache
def _unsayable(settings: type) -> str:
    """Why no recipe can fill such settings, as the end of a line; nothing if one can."""
    if not _frozen(settings):
        return ": its Settings must be frozen: @dataclass(frozen=True)"
    for field in dataclasses.fields(settings):
        if field.default is field.default_factory is dataclasses.MISSING:
            return f": {field.name} of its Settings has no default"
    for name, hint in typing.get_type_hints(settings).items():
        if typing.get_origin(hint) is not typing.ClassVar and not sayable(hint):
            return (
                f": {name} of its Settings is a {getattr(hint, '__name__', hint)}; a recipe "
                "can say int, float, bool, str, Literal[…], and tuple[…, ...] of these"
            )
    return ""


def _require_heir(thing: type, settings: type, what: str) -> None:
    """A base of fedrl reads its own settings: they must be among the class's."""
    for base in thing.__mro__:
        theirs = vars(base).get("Settings")
        if base.__module__.partition(".")[0] != "fedrl" or not inspect.isclass(theirs):
            continue
        if missing := sorted({n for n in dir(theirs) if not n.startswith("_")} - {*dir(settings)}):
            raise UserError(
                f"{what}: its Settings lack {', '.join(missing[:3])}{', …' * (len(missing) > 3)}, "
                f"which {base.__name__} reads: class Settings({base.__name__}.Settings)"
            )


def _kinds(thing: Any, what: str) -> tuple[str, ...]:
    kinds = getattr(thing, "kinds", None)
    if not isinstance(kinds, tuple) or not kinds:
        raise UserError(
            f'{what} has no kinds: which worlds it plays, or offers, such as ("control",)'
        )
    return kinds


def _frozen(settings: type) -> bool:
    """Whether it can have a frozen heir, which is the only way that dataclasses tell."""
    try:
        dataclasses.make_dataclass("Heir", [], bases=(settings,), frozen=True)
    except TypeError:
        return False
    return True


@cache
def _named(settings: type) -> type:
    """The settings with the field `name` that every recipe has."""
    if any(field.name == "name" for field in dataclasses.fields(settings)):
        return settings
    named = dataclasses.make_dataclass(
        settings.__name__,
        [("name", Word, dataclasses.field(default=""))],
        bases=(settings,),
        frozen=True,
    )
    named.__doc__, named.__module__ = settings.__doc__, settings.__module__
    return named


def code_settings(settings: object, prefix: str, only: Set[str] | None = None) -> Iterator[Entry]:
    """Where the settings lead that name code (`types.CodeName`, `CodeCall`); all, or these keys."""
    hints = typing.get_type_hints(type(settings), include_extras=True)
    for key, hint in hints.items():
        said = getattr(settings, key, ())
        inner = typing.get_args(hint)[0] if isinstance(said, tuple) and said else hint
        if inner not in (CodeName, CodeCall) or (only is not None and f"{prefix}{key}" not in only):
            continue
        for text in said if isinstance(said, tuple) else (said,):
            if (entry := code(text, f"{prefix}{key}")) is not None:
                yield entry


def rewards(world: object) -> tuple[str, ...]:
    """Names of the reward functions in a world's settings."""
    return world.reward if isinstance(world, Prompts) else ()


def reward_entries(world: object) -> Iterator[Entry]:
    """Where they lead; a package's files are known when it is imported."""
    for name in rewards(world):
        entry = REWARDS.find(name)
        load(entry, REWARDS.key, name)
        yield entry


def packages(names: Mapping[str, str], *settings: tuple[str, object]) -> tuple[str, ...]:
    """`package:version:hash` of what comes from outside, by the tables and names that say so, and
    by settings that name code (each with what stands before its keys)."""
    entries = [TABLES[table].find(name) for table, name in names.items()]
    entries += [entry for prefix, one in settings for entry in code_settings(one, prefix)]
    entries += [entry for _, one in settings for entry in reward_entries(one)]
    return tuple(sorted({fingerprint(entry) for entry in entries if entry.outside}))


def registered(used: Set[str]) -> dict[str, dict[str, object]]:
    """What `fedrl.register` was given under these names, by tables, for processes that this one
    starts. What a run does not use may be anything, also what cannot be sent."""
    return {
        table: {name: e.thing for name, e in names.registered.items() if name in used}
        for table, names in TABLES.items()
        if names.registered.keys() & used
    }
