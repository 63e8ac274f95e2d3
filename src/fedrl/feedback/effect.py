"""What a person's answers changed: the client's recommendations with them and without.

The learner writes it after a round's work, beside the answers that it used; the page shows it. It
is as private as they are: it never leaves the client, and goes when answers are deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from fedrl.core.types import UserError
from fedrl.feedback.entries import now
from fedrl.feedback.store import EFFECT, Folder

Kind = Literal["films", "texts"]
SIDES = ("without", "with_answers")


class Recommendation(NamedTuple):
    """An item and its score in stars; of a text, what it goes on from and no score."""

    item: str
    score: float | None = None
    prompt: str = ""


class Effect(NamedTuple):
    """`without` and `with_answers`, best first, are of the same round of the same client.

    films   what it recommends if it learns as if nobody had answered, and what with the answers
    texts   what the model wrote as it came, and after it has learned here, to the same prompts

    `answers` are queries that somebody had answered, `people` how many each person had.
    """

    kind: Kind
    answers: int
    without: tuple[Recommendation, ...]
    with_answers: tuple[Recommendation, ...]
    time: float = 0.0
    people: Mapping[str, int] = MappingProxyType({})

    def of(self, person: str) -> int:
        """This person's answers by then; a file without names is of the only one."""
        return self.people.get(person, 0) if self.people else self.answers

    def several(self, person: str) -> bool:
        """Whether anybody else was heard."""
        return any(name != person for name in self.people)


def write(folder: Folder, effect: Effect) -> None:
    rows = effect._replace(time=now(), people=folder.counts())._asdict()
    for side in SIDES:
        rows[side] = [one._asdict() for one in rows[side]]
    folder.replace(EFFECT, json.dumps(rows).encode())


def read(folder: Folder) -> Effect | None:
    """None before the first round that heard somebody, and after a deletion until the next one."""
    path = folder.path / EFFECT
    try:
        rows = json.loads(path.read_bytes())
        without, with_answers = (
            tuple(Recommendation(**one) for one in rows[side]) for side in SIDES
        )
        time = float(rows["time"])
        people = {str(name): int(count) for name, count in rows.get("people", {}).items()}
        return Effect(rows["kind"], int(rows["answers"]), without, with_answers, time, people)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged; remove it, the next round writes it") from error
