"""What a person's answers changed: the client's recommendations with them and without.

The learner writes it after a round's work, beside the answers that it used; the page shows it. It
is as private as they are: it never leaves the client, and goes when answers are deleted. What the
model recommended before anybody had answered holds nothing of them, and stays (`effect_rest`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from fedrl.core.types import UserError
from fedrl.feedback.entries import now
from fedrl.feedback.store import EFFECT, Folder, Given

Kind = Literal["films", "texts"]
SIDES = ("without", "with_answers")
LISTS = (*SIDES, "first", "fell")


class Recommendation(NamedTuple):
    """An item and its score in stars; of a text, what it goes on from and no score.

    `sharing` counts the films that have this score, itself included: 0 where that is not known.
    `first` is its score before anybody had answered, `other` its score in the other list of the
    round; None where that is not known.
    """

    item: str
    score: float | None = None
    prompt: str = ""
    sharing: int = 0
    first: float | None = None
    other: float | None = None


class Heard(NamedTuple):
    """How much of one person was heard, and the first round that heard just that.

    `mark` stands for the answers: another one is news to the person.
    """

    answers: int
    round: int
    mark: str


class Effect(NamedTuple):
    """`without` and `with_answers`, best first, are of the same round of the same client.

    films   what it recommends if it learns as if nobody had answered, and what with the answers
    texts   what the model wrote as it came, and after it has learned here, to the same prompts

    `answers` are queries that somebody had answered, `people` what each person had said. `first` is
    of the last round before anybody had said anything; rounds since then have learned from others,
    too. Nothing where no such round was written. `films` is how many were scored: where all of
    them share one score, the best are no better than the rest. `fell` are those whose scores fell
    most since `first`, and `sharing` counts those that fell as far. `stars` are the scores of all
    films, in their order: only those of `first` are kept.
    """

    kind: Kind
    answers: int
    without: tuple[Recommendation, ...]
    with_answers: tuple[Recommendation, ...]
    time: float = 0.0
    people: Mapping[str, Heard] = MappingProxyType({})
    round: int = 0
    first: tuple[Recommendation, ...] = ()
    films: int = 0
    fell: tuple[Recommendation, ...] = ()
    stars: tuple[float, ...] = ()

    def of(self, person: str) -> int:
        """This person's answers by then; a file without names is of the only one."""
        if not self.people:
            return self.answers
        return self.people[person].answers if person in self.people else 0

    def several(self, person: str) -> bool:
        """Whether anybody else was heard."""
        return any(name != person for name in self.people)


def write(folder: Folder, effect: Effect, heard: Given) -> None:
    """Of a round that `heard` these answers; nothing if one of them was taken back meanwhile."""
    try:
        before = _rows(folder) or {}
        last = _effect(folder, before) if before else None
        first = _recommendations(folder, before.get("first", ()))
    except UserError:  # a damaged file is written anew
        before, last, first = {}, None, ()
    stars = before.get("stars", ())
    if before.get("kind") != effect.kind:
        first, stars = (), ()
    if not heard and folder.untouched():
        first, stars = effect.with_answers, effect.stars
    known = last.people if last else {}
    people = {who: _heard(said, effect.round, known.get(who)) for who, said in heard.items()}
    rows = effect._replace(time=now(), people=people, first=first, stars=stars)._asdict()
    for side in LISTS:
        rows[side] = [one._asdict() for one in rows[side]]
    rows["people"] = {who: one._asdict() for who, one in people.items()}
    rows["remains"] = _remains(before)
    news = {who: one.mark for who, one in people.items()}
    learned = news != {who: one.mark for who, one in known.items()}
    folder.write_effect(json.dumps(rows).encode(), heard, learned)


def _heard(said: Mapping[str, float], round: int, before: Heard | None) -> Heard:
    mark = hashlib.sha256(json.dumps(sorted(said.items())).encode()).hexdigest()[:16]
    same = before is not None and before.mark == mark
    return Heard(len(said), before.round if before and same else round, mark)


def read(folder: Folder) -> Effect | None:
    """None before the first round that heard somebody, and after a deletion until the next one."""
    rows = _rows(folder)
    return None if rows is None else _effect(folder, rows)


def beginning(folder: Folder) -> tuple[float, ...]:
    """The scores of all films before anybody had answered; nothing where they are not known."""
    try:
        return tuple(float(one) for one in (_rows(folder) or {}).get("stars", ()))
    except (UserError, ValueError, TypeError):  # a damaged file is written anew
        return ()


def taken_away(folder: Folder) -> bool:
    """Whether there was something to show until an answer was deleted."""
    rows = _rows(folder)
    return rows is not None and bool(rows.get("deleted"))


def remains(folder: Folder) -> bool:
    """Whether something of deleted answers was learned from and sent on: that stays."""
    return _remains(_rows(folder) or {})


def _remains(rows: dict[str, Any]) -> bool:
    return bool(rows.get("deleted") or rows.get("remains"))


def _rows(folder: Folder) -> dict[str, Any] | None:
    path = folder.path / EFFECT
    try:
        rows = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(folder) from error
    if not isinstance(rows, dict):
        raise _damaged(folder)
    return rows


def _effect(folder: Folder, rows: dict[str, Any]) -> Effect | None:
    if "deleted" in rows:
        return None
    try:
        without, with_answers = (_recommendations(folder, rows[side]) for side in SIDES)
        time = float(rows["time"])
        people = {str(name): Heard(**one) for name, one in rows["people"].items()}
        answers, number = int(rows["answers"]), int(rows["round"])
        first, fell = (_recommendations(folder, rows.get(name, ())) for name in ("first", "fell"))
        kind, films = rows["kind"], int(rows.get("films", 0))
        return Effect(
            kind, answers, without, with_answers, time, people, number, first, films, fell
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder) from error


def _recommendations(folder: Folder, rows: Any) -> tuple[Recommendation, ...]:
    try:
        return tuple(Recommendation(**one) for one in rows)
    except TypeError as error:
        raise _damaged(folder) from error


def _damaged(folder: Folder) -> UserError:
    return UserError(f"{folder.path / EFFECT} is damaged; remove it, the next round writes it")
