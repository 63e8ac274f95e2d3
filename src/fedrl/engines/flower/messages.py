"""What the driver asks and a node answers, as JSON beside the tensors.

Every question has a nonce that an answer must repeat: an answer to another question, of another
round or replayed by somebody, is refused. What is read here came from another machine: unknown or
missing fields and wrong types are `Damaged`, and numbers stay within their meaning.
"""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
from dataclasses import dataclass, field
from typing import TypeVar, get_type_hints

from fedrl.core.serialization import Damaged
from fedrl.core.types import JsonValue

COUNTS = 2**31
"""Rounds and attempts are fewer."""
Kind = TypeVar("Kind", bound="Heading")


def nonce() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Heading:
    """What every question has, and an answer repeats."""

    nonce: str


class Who(Heading):
    """Which client are you?"""


@dataclass(frozen=True)
class Name(Heading):
    """Its answer: the client's number, and the fedrl that runs there."""

    client: int
    version: str


@dataclass(frozen=True)
class Job(Heading):
    """One client's work in one round; the broadcast travels beside it, `digest` is its checksum.

    `state` is the tag of the state to start from, empty for none; a new state gets the nonce as its
    tag. `recipe` is the run's configuration, read on the node with the node's own paths.
    `exchange` names the secure sum that the update is for, `terms` are those of all its clients;
    the answer has keys beside it and no update. Both are empty where updates travel as they are.
    The seed of a sum's job follows from the recipe's, `round` and `attempt`.
    """

    client: int
    seed: int
    run: str
    state: str
    keep: int
    deadline: float
    recipe: str
    digest: str
    exchange: str = ""
    terms: dict[str, float] = field(default_factory=dict)
    round: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class Ready(Heading):
    """Before round 1: read this recipe, build what it asks for, and say whether you can."""

    client: int
    run: str
    recipe: str
    digest: str


@dataclass(frozen=True)
class Step(Heading):
    """The next step of a secure sum: share, mask or unmask, with what it needs beside it."""

    client: int
    exchange: str
    step: str
    digest: str


Asked = Ready | Job | Step
"""What a client is asked for, once it is known which it is."""


@dataclass(frozen=True)
class Answer(Heading):
    """The end of a job or step: `reason` is empty, or says why there is nothing beside it, and
    `refused` whether the same question would get the same answer."""

    client: int
    reason: str = ""
    weight: float = 1.0
    metrics: dict[str, float] = field(default_factory=dict)
    kept: bool = False
    digest: str = ""
    refused: bool = False


KINDS: dict[str, type[Heading]] = {
    "who": Who,
    "name": Name,
    "job": Job,
    "ready": Ready,
    "step": Step,
    "answer": Answer,
}


def to_json(heading: Heading) -> str:
    kind = next(name for name, cls in KINDS.items() if type(heading) is cls)
    return json.dumps({"kind": kind} | dataclasses.asdict(heading))


def from_json(text: str, *expected: type[Kind]) -> Kind:
    """A heading of one of the expected kinds."""
    try:
        data = json.loads(text)
        cls = KINDS[data.pop("kind")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged("not a message of fedrl") from error
    for kind in expected:
        if kind is cls:
            break
    else:
        raise Damaged(f"a message of the kind {cls.__name__}, which does not belong here")
    hints = get_type_hints(cls)
    if set(data) != set(hints):
        raise Damaged(f"a {cls.__name__} with other fields: is another version of fedrl there?")
    for name, hint in hints.items():
        if not _is(data[name], hint):
            raise Damaged(f"{name} of a {cls.__name__} is not what it should be")
    if cls is Job and not all(0 <= data[name] < COUNTS for name in ("round", "attempt")):
        raise Damaged("the round or attempt of a Job is no count")
    return kind(**data)


def _is(value: JsonValue, hint: type) -> bool:
    if hint == dict[str, float]:
        return isinstance(value, dict) and all(_is(v, float) for v in value.values())
    if isinstance(value, bool):
        return hint is bool
    if isinstance(value, int):  # one too large for a float would be found out in arithmetic
        return (hint is int and abs(value) < 2**63) or (hint is float and abs(value) <= 2**53)
    return isinstance(value, hint)


def sendable(metrics: dict[str, float]) -> dict[str, float]:
    """Python floats: JSON gives their bits back, and NaN too, which the server leaves out."""
    return {name: float(value) for name, value in metrics.items()}


def weight_of(value: float) -> float:
    """A weight that can be written; the server refuses what is no positive number."""
    return float(value) if isinstance(value, float | int) else math.nan
