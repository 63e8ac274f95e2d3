"""What becomes of a person's entry: a line of the answers' file, nothing, or a conflict.

A conflict is an entry that would overwrite what the person did elsewhere, in another tab or on
another device, or that answers a query which is gone. Nothing is written then, and whoever sent it
is told what stands, so that the person can decide.
"""

from __future__ import annotations

import math
import time
from typing import Literal, NamedTuple

from fedrl.core.types import UserError
from fedrl.feedback.answer_log import Entry, FolderView, Line

LONGEST_COMMENT = 500


class Conflict(NamedTuple):
    """`gone`: the query is no longer asked. `elsewhere`: it was dealt with in another place."""

    entry: Entry
    why: Literal["gone", "elsewhere"]


def apply(view: FolderView, entry: Entry) -> Line | Conflict | None:
    """The line of an entry that does something; the view is brought up to date with it."""
    if entry.once and entry.once in view.log.seen:
        return None
    found = _undo(view, entry) if entry.act == "undo" else _other(view, entry)
    if found is None or isinstance(found, Conflict):
        return found
    line = Line(time=now(), once=entry.once) if entry.once else Line(time=now())
    line |= found
    view.log.apply(line)
    return line


def _undo(view: FolderView, entry: Entry) -> Line | None:
    last = view.undoable[-1].question if view.undoable else ""
    return Line(undo=last) if last and entry.question in ("", last) else None


def _other(view: FolderView, entry: Entry) -> Line | Conflict | None:
    name, log = entry.question, view.log
    if entry.act == "forget":
        known = log.standing(name) is not None
        return Line(forget=name, version=log.version(name) + 1) if known else None
    value, comment = checked(entry.value), _comment(entry.comment)
    standing = log.standing(name)
    if name not in view.queries:
        return Conflict(entry, "gone")
    fits = name in log.closed if entry.act == "change" else name not in log.closed | log.forgotten
    if not fits or entry.version not in (None, log.version(name)):
        same = standing is not None and (standing.value, standing.skip) == (
            value, entry.act == "skip",
        )  # fmt: skip
        return None if same and not comment else Conflict(entry, "elsewhere")
    if entry.act == "skip":
        return Line(skip=name)
    if entry.act == "change":
        line = Line(change=name, value=value)
        return line if comment is None else line | Line(comment=comment)
    line = Line(question=name, value=value)
    return line | Line(comment=comment) if comment else line


def checked(value: float | None) -> float | None:
    """None is "cannot say"."""
    if value is None:
        return None
    if not (math.isfinite(value) and -1 <= value <= 1):
        raise UserError(f"an answer is a number from -1 to 1, not {value}")
    return float(value)


def _comment(text: str | None) -> str | None:
    if text is not None and len(text) > LONGEST_COMMENT:
        raise UserError(f"a comment has at most {LONGEST_COMMENT} characters, not {len(text)}")
    return None if text is None else text.strip()


def now() -> float:
    return round(time.time(), 3)
