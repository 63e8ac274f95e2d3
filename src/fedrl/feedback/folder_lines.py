"""Lines of a private folder's files, read and written: what is none is an error."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, cast, get_args

from fedrl.core.types import UserError
from fedrl.feedback.answer_log import Line
from fedrl.feedback.queries import Query, Stale

ITEMS = {"rate": 1, "compare": 2}
"""How many items a query is about."""
Parsed = TypeVar("Parsed")


def whole_lines(path: Path, parse: Callable[[bytes], Parsed]) -> list[Parsed]:
    """What follows the last line's end was never finished."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    parsed = []
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            parsed.append(parse(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{path}, line {number} is damaged; remove this line to go on"
            ) from None
    return parsed


def append(path: Path, data: bytes) -> None:
    """After the last whole line, and onto the disk."""
    with opened(path) as file:
        end = os.lseek(file, 0, os.SEEK_END)
        whole = os.pread(file, end, 0).rfind(b"\n") + 1
        os.ftruncate(file, whole)
        while data:
            written = os.pwrite(file, data, whole)
            data, whole = data[written:], whole + written
        os.fsync(file)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A file of this client's, for nobody else; made if it is missing."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def query(line: bytes) -> Query:
    """A line of the queries, if it is one."""
    fields = json.loads(line)
    keys, items, scores = (tuple(fields[name]) for name in ("keys", "items", "scores"))
    if {len(keys), len(items), len(scores)} != {ITEMS[fields["kind"]]}:
        raise ValueError
    prompt = str(fields.get("prompt", ""))
    guessed, stale = bool(fields.get("guessed", True)), _stale(fields.get("stale", ""))
    return Query(str(fields["id"]), fields["kind"], keys, items, scores, prompt, guessed, stale)


def _stale(told: object) -> Stale:
    if isinstance(told, bool):  # of an older fedrl
        return "deleted" if told else ""
    for known in get_args(Stale):
        if told == known:
            return cast(Stale, known)
    raise ValueError


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
