"""Reward functions of one's own, called as TRL's GRPOTrainer calls them.

    reward(prompts=…, completions=…, completion_ids=…, **columns, trainer_state=None,
           log_extra=…, log_metric=…) -> list[float | None]

One call holds all answers of a rollout. Prompts are texts, or chat messages; then a completion is
`[{"role": "assistant", "content": …}]`. Every other column of the data is a list of as many values.
Functions may be `async`. None is no opinion: the other functions count, and an answer on which none
has one is left out of its group. The reward is the weighted sum.

Where we differ from TRL: `trainer_state` is None, since a client has no training run of its own;
what is logged goes nowhere, since it would be about single answers; NaN is an error, and no other
None. What a function raises or returns may quote an answer, so the errors that are raised here say
no more than its name, a type, and a line of its code.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import math
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedrl.core.registry import Entry, Table, label, load
from fedrl.core.types import Shareable, UserError

KEY = "world.reward"
Message = Mapping[str, str]
Prompt = str | Sequence[Message]
RewardFunction = Callable[..., Any]
"""Somebody else's: `Any` is what it returns, until it is checked."""

_BUILTIN = {
    name: Entry(f"fedrl.envs.prompts.builtin_rewards:{name}", "", summary)
    for name, summary in (
        ("exact_match", "1 for the very text of the column `answer`"),
        ("number_match", "1 where the last number is that of the column `answer`"),
        ("contains_answer", "1 where the column `answer` stands in the completion"),
    )
}
REWARDS = Table("rewards", KEY, _BUILTIN, by_place=False)

RESERVED = frozenset({"prompt", "prompts", "completion", "completions", "completion_ids"})
"""Columns that are never handed on under their own names: the call has them already."""


CALLED = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""What every call has beside the columns."""
GIVEN = RESERVED | set(CALLED)
PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Scored(NamedTuple):
    """What one answer got: in all, and from each function; None from all is no score."""

    reward: float
    parts: Mapping[str, float | None]

    @property
    def known(self) -> bool:
        return any(part is not None for part in self.parts.values())


class Answer(NamedTuple):
    """One completion of one prompt: its text, its tokens, and the other columns of its row.

    `messages` are those of a completion that called tools, the calls and their results included.
    """

    prompt: Prompt
    text: str
    tokens: Sequence[int]
    columns: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]] = ()

    def completion(self) -> Any:
        """As a reward function gets it: chat messages where the prompt has such."""
        if isinstance(self.prompt, str):
            return self.text
        return list(self.messages) or [{"role": "assistant", "content": self.text}]


@dataclass(frozen=True)
class Rewards:
    """The functions of a recipe with their names and weights."""

    functions: tuple[RewardFunction, ...]
    names: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def find(cls, names: Sequence[str], weights: Sequence[float]) -> Rewards:
        if not names:
            raise UserError(
                f"{KEY} is empty; it names functions, such as package.module:function or "
                f"{', '.join(REWARDS.builtin)}"
            )
        functions = []
        for name in names:
            function = load(REWARDS.find(name), KEY, name)
            if not callable(function):
                raise UserError(f"{KEY} = {name!r} is no function")
            functions.append(function)
        return cls(tuple(functions), tuple(names), tuple(weights) or (1.0,) * len(names))

    def columns(self) -> dict[str, str]:
        """Columns of the data that a function cannot do without, and which asks for each."""
        return {
            column: label(name)
            for name, function in zip(self.names, self.functions, strict=True)
            for column in _needed(function)
        }

    def require_arguments(self, columns: Collection[str]) -> None:
        """Every function has a place for what it is called with, these columns included."""
        named = [*CALLED, *sorted(set(columns) - RESERVED)]
        for name, function in zip(self.names, self.functions, strict=True):
            arguments = _arguments(function)
            if not arguments or any(each.kind is each.VAR_KEYWORD for each in arguments):
                continue
            taken = {each.name for each in arguments if each.kind in PLAIN}
            if lacking := [each for each in named if each not in taken]:
                raise UserError(
                    f"{KEY} {label(name)!r} takes no {', '.join(lacking)}, which it is called with "
                    "by name: end its arguments with **columns"
                )

    def __call__(self, answers: Sequence[Answer]) -> list[Scored]:
        """Of every answer, in one call of each function."""
        asked = {
            "prompts": [answer.prompt for answer in answers],
            "completions": [answer.completion() for answer in answers],
            "completion_ids": [list(answer.tokens) for answer in answers],
            **{
                column: [answer.columns[column] for answer in answers]
                for column in answers[0].columns
                if column not in RESERVED
            },
            "trainer_state": None,
            "log_extra": _forget,
            "log_metric": _forget,
        }
        table = [
            _checked(name, function, asked, len(answers))
            for name, function in zip(self.names, self.functions, strict=True)
        ]
        shown = list(map(label, self.names))
        return [
            Scored(
                sum(
                    w * part for w, part in zip(self.weights, row, strict=True) if part is not None
                ),
                dict(zip(shown, row, strict=True)),
            )
            for row in zip(*table, strict=True)
        ]


def _needed(function: RewardFunction) -> list[str]:
    """Its arguments that have no default and are nothing that every call has."""
    return [
        each.name
        for each in _arguments(function)
        if each.kind in PLAIN and each.default is each.empty and each.name not in GIVEN
    ]


def _arguments(function: RewardFunction) -> list[inspect.Parameter]:
    """Nothing of callables that have no signature to show."""
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return []


def _forget(name: str, value: object) -> None:
    """What is logged about single answers stays nowhere."""


def _checked(
    name: str, function: RewardFunction, asked: Mapping[str, Any], count: int
) -> list[float | None]:
    """What one function gave, a number or None for each answer."""
    what = f"{KEY} {label(name)!r}"
    try:
        found = _called(function, asked)
    except (Exception, SystemExit) as error:  # code of others may fail in any way
        said = f"{what} raised {_kind(error, 'an error of its own')}{_raised_at(error)}"
        raise UserError(Shareable(said)) from error
    try:
        found = list(found)
    except TypeError as error:
        said = f"{what} returned {_kind(found, 'something')} instead of a list of numbers"
        raise UserError(Shareable(said)) from error
    if len(found) != count:
        raise UserError(Shareable(f"{what} returned {len(found)} rewards for {count} answers"))
    numbers = [_number(what, value) for value in found]
    if strange := [x for x in numbers if x is not None and not math.isfinite(x)]:
        raise UserError(
            Shareable(f"{what} returned {strange[0]} for {len(strange)} of {count} answers")
        )
    return numbers


def _called(function: RewardFunction, asked: Mapping[str, Any]) -> Any:
    found = function(**asked)
    if not inspect.isawaitable(found):
        return found
    with ThreadPoolExecutor(1) as beside:  # a notebook's loop runs in this thread already
        return beside.submit(asyncio.run, _awaited(found)).result()


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


def _number(what: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        kind = _kind(value, "something")
        raise UserError(Shareable(f"{what} returned {kind} where a number belongs")) from error


def _kind(thing: object, other: str) -> str:
    """The name of a type that Python has; names of others are made by code that reads the data."""
    name = type(thing).__name__
    if getattr(builtins, name, None) is not type(thing):
        return other
    return name if isinstance(thing, BaseException) else f"a {name}"


def _raised_at(error: BaseException) -> str:
    """ " (mine.py, line 12)": the innermost line of the function's own code."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
