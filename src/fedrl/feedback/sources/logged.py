"""Answers from a file, one JSON object per line: {"question": ID, "value": H}.

That is also how a person's answers are kept (`store`), so a session can be played again: undone and
skipped ones are left out here too, and so are "cannot say" (null) and what was deleted. What the
file does not hold stays unanswered. The server may learn that a client's file cannot be read, but
nothing of what it says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrl.core.types import Shareable, UserError
from fedrl.feedback.queries import Answer, Query


@dataclass(frozen=True)
class LoggedAnswers:
    """A `FeedbackSource` that says what was said before."""

    values: Mapping[str, float]

    def answers(self, queries: Sequence[Query], seed: int) -> list[Answer]:
        """`seed` is not read: nothing here is left to chance."""
        answered = [query.id for query in queries if query.id in self.values]
        return [Answer(name, self.values[name]) for name in answered]


def source(path: Path) -> LoggedAnswers:
    """Of several answers to one question the last one counts."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(Shareable(f"cannot read the answers in {path}: {why}")) from error
    except UnicodeDecodeError as error:
        raise UserError(Shareable(f"cannot read the answers in {path}: not UTF-8")) from error
    values: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            _apply(values, line, f"{path}, line {number}")
    return LoggedAnswers(values)


def _apply(values: dict[str, float], line: str, where: str) -> None:
    try:
        entry = json.loads(line)
        if "undo" in entry:
            values.pop(entry["undo"], None)
            return
        if "forget" in entry:
            values.pop(entry["forget"], None)
            return
        if "sit" in entry or "skip" in entry:  # neither says anything
            return
        question = str(entry["change"] if "change" in entry else entry["question"])
        if entry["value"] is None:
            values.pop(question, None)
            return
        value = float(entry["value"])
    except (ValueError, KeyError, TypeError) as error:
        said = f'{where} is no answer; it must read {{"question": ID, "value": H}}'
        raise UserError(Shareable(said)) from error
    if not -1 <= value <= 1:
        raise UserError(f"{where} says {value}; an answer is a number from -1 to 1")
    values[question] = value
