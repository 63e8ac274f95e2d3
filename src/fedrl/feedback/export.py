"""A person's answers as a file of their own: JSON that holds all, or a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

from fedrl.feedback.answer_log import FolderView, StandingEntry
from fedrl.feedback.queries import Query

WORDS = {
    "rate": {-1.0: "too high", 0.0: "about right", 1.0: "too low"},
    "compare": {-1.0: "first is better", 0.0: "about the same", 1.0: "second is better"},
}
START = {-1.0: "fewer stars", 0.0: "about that", 1.0: "more stars"}
"""Of a rating where the model had no guess yet."""
COLUMNS = ("time", "question", "first", "second", "shown score", "answer", "value", "note")
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def said(query: Query, value: float | None) -> str:
    """An answer in words."""
    words = WORDS[query.kind] if query.guessed else START
    return "cannot say" if value is None else words.get(value, f"{value:g}")


def as_json(view: FolderView) -> str:
    """All that stands, oldest first."""
    rows = [
        {
            "time": _time(entry.time), "question": query.id, "kind": query.kind,
            "items": query.items, "prompt": query.prompt, "shown_score": _shown_score(query),
            "value": entry.value,
            "answer": said(query, entry.value), "note": entry.comment,
        }
        for query, entry in _by_time(view)
    ]  # fmt: skip
    return json.dumps({"answers": rows}, indent=1, ensure_ascii=False) + "\n"


def as_csv(view: FolderView) -> str:
    """The same as a table. A text that a spreadsheet would take for a formula gets a ' before."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for query, entry in _by_time(view):
        first, second = (*query.items, "")[:2]
        score = _shown_score(query)
        shown = "" if score is None else f"{score:g}"
        value = "" if entry.value is None else f"{entry.value:g}"
        words = query.kind, first, second, shown, said(query, entry.value)
        writer.writerow([_time(entry.time), *map(_plain, words), value, _plain(entry.comment)])
    return table.getvalue()


def _by_time(view: FolderView) -> list[tuple[Query, StandingEntry]]:
    """All that stands, oldest first; an answer that was changed has the time of its change."""
    as_first_given = view.history[::-1]
    return sorted(as_first_given, key=lambda one: one[1].time)


def _shown_score(query: Query) -> float | None:
    """Of two items no scores are shown: they would sway."""
    return query.scores[0] if query.kind == "rate" else None


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
