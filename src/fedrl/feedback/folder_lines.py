"""Lines of a private folder's files, read and written: what is none is an error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import get_args

from fedrl.feedback.answer_log import Line
from fedrl.feedback.queries import Query, Stale

ITEMS = {"rate": 1, "compare": 2}
"""How many items a query is about."""


def query(line: bytes) -> Query:
    """A line of the queries, if it is one."""
    fields = json.loads(line)
    keys, items, scores = (tuple(fields[name]) for name in ("keys", "items", "scores"))
    if {len(keys), len(items), len(scores)} != {ITEMS[fields["kind"]]}:
        raise ValueError
    prompt = str(fields.get("prompt", ""))
    guessed, stale = bool(fields.get("guessed", True)), fields.get("stale") or ""
    if stale is True:  # of an older fedrl
        stale = "deleted"
    if stale not in get_args(Stale):
        raise ValueError
    return Query(str(fields["id"]), fields["kind"], keys, items, scores, prompt, guessed, stale)


def answer_line(line: bytes) -> Line:
    """A line of the answers, if it is one."""
    parsed = Line(**json.loads(line))
    if "undo" in parsed:
        return parsed | Line(undo=str(parsed["undo"]))
    if "skip" in parsed:
        return parsed | Line(skip=str(parsed["skip"]))
    if "forget" in parsed:
        return parsed | Line(forget=str(parsed["forget"]))
    if "sit" in parsed:
        return parsed
    value = parsed["value"]
    if value is not None and not -1 <= float(value) <= 1:
        raise ValueError
    said = Line(value=None if value is None else float(value))
    if "comment" in parsed:
        said["comment"] = str(parsed["comment"])
    if "change" in parsed:
        return parsed | said | Line(change=str(parsed["change"]))
    return parsed | said | Line(question=str(parsed["question"]))


def json_lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
