"""Typed settings from words: flags as they are typed, TOML values as they are read.

Nothing is converted silently: a value of the wrong type is an error that names its key.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

from fedrl.core.registry import suggestion
from fedrl.core.types import Json, UserError

Section = TypeVar("Section")


def split_flags(flags: Sequence[str]) -> list[tuple[str, str | None]]:
    """`--a.b 1 --c=2 --flag` → [("a.b", "1"), ("c", "2"), ("flag", None)]."""
    pairs: list[tuple[str, str | None]] = []
    rest = list(flags)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(
                f"unexpected argument {word!r}; settings are flags, lists without blanks: "
                "--key VALUE --list 1,2,3"
            )
        key, equals, text = word[2:].partition("=")
        value: str | None = text
        if not equals:
            is_value = rest and not rest[0].startswith("--")
            value = rest.pop(0) if is_value else None
        pairs.append((key.replace("-", "_"), value))
    return pairs


@cache
def fields(cls: type) -> Mapping[str, Any]:
    """The types of its fields; once, because hints are texts that Python evaluates anew."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def nearest(key: str, known: Sequence[str]) -> str:
    """A key of the same last part (`--beta`) is nearer than one that is spelled alike."""
    same = [name for name in known if name.rpartition(".")[2] == key]
    return f"did you mean {same[0]!r}?" if same else suggestion(key, list(known))


def parse(text: str, hint: Any, key: str) -> Any:
    """A flag's text as a value of the hinted type; `_checked` has the last word."""
    if typing.get_origin(hint) is tuple:
        items = text.strip("[]() ").split(",")
        inner = typing.get_args(hint)[0]
        return [parse(item.strip().strip("'\""), inner, key) for item in items if item.strip()]
    if hint is str or typing.get_origin(hint) is Literal:
        return text
    if typing.get_origin(hint) is types.UnionType and text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def sayable(hint: Any) -> bool:
    """Whether a recipe can say values of this type, and `checked` can check them."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return len(args) == 2 and type(None) in args and all(map(sayable, {*args} - {type(None)}))
    if origin is tuple:
        return len(args) == 2 and args[1] is ... and sayable(args[0])
    return origin is Literal or hint in (int, float, bool, str)


def checked(value: Any, hint: Any, key: str) -> Any:
    """The value as the hinted type, or an error that names the key."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value in args:
            return value
        choices = {str(a): None for a in args}
        raise UserError(f"{key} is {value!r}; {suggestion(str(value), choices)}")
    if origin is types.UnionType:
        if value is None and type(None) in args:
            return None
        hint = next(option for option in args if option is not type(None))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key} is {value!r}; it must be a list")
        return tuple(checked(item, args[0], key) for item in value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UserError(f"{key} is {value}; it must be a finite number")
        return float(value)
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        if isinstance(value, str):
            require_text(value, key)
        return value
    kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[hint]
    raise UserError(f"{key} is {value!r}; it must be {kind}")


def require_text(value: str, key: str) -> None:
    """A folder's name may hold bytes that are no text; no recipe can say them."""
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
        raise UserError(f"{key} is {value!r}; it holds bytes that are no text")


def section(cls: type[Section], pairs: Sequence[tuple[str, str | None]], prefix: str) -> Section:
    """An instance of a settings class from flags: `--omega 0.9` where the prefix is empty."""
    hints = fields(typing.cast(type, cls))
    known = [prefix + name for name in hints if name != "name"]
    values: Json = {}
    for key, text in pairs:
        if key not in known:
            raise UserError(f"unknown key --{key}; {nearest(key, known)}")
        hint = hints[key.removeprefix(prefix)]
        if text is None and hint is not bool:
            raise UserError(f"--{key} needs a value")
        value = True if text is None else parse(text, hint, key)
        values[key.removeprefix(prefix)] = checked(value, hint, key)
    return cls(**values)
