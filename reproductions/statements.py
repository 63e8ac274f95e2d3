"""What a paper says, what came out, and the records behind it: a row of the index of results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reproductions.pages import NOT_MEASURED
from reproductions.records import Data
from reproductions.results import Trained
from reproductions.verdicts import FAILS, HOLDS, OPEN, together

NOT_JUDGED = "not judged"
WORDS = (HOLDS, FAILS, OPEN, NOT_JUDGED, NOT_MEASURED)


@dataclass(frozen=True)
class Statement:
    """One claim of a paper, judged."""

    where: str
    """What of the paper says it: "Table 2", "Theorem 6.4"."""
    claim: str
    verdict: str
    """One of `WORDS`."""
    found: str
    """The numbers with their intervals, and what would decide where nothing is decided."""
    seeds: int
    records: Sequence[Data] = field(repr=False)
    ours: bool = False
    """Not the paper's: what a claim of it rests on."""
    afterwards: bool = False
    """Its rule was written, or written anew, when its runs were there."""
    finding: str = ""
    """What rows of one place share that are readings of one claim; nothing if it stands alone."""


@dataclass(frozen=True)
class Health:
    """A baseline's row beside what is published of it: a method is compared with healthy ones."""

    baseline: str
    task: str
    here: str
    published: str
    source: str
    records: Sequence[Data] = field(repr=False)


def judged(where: str, claim: str, text: str | None, records: Iterable[Data], seeds: int = 0,
           ours: bool = False) -> Statement:  # fmt: skip
    """Of a page's sentence, whose verdicts are its bold words."""
    word = verdict_of(text)
    found = [] if word == NOT_MEASURED else list(records)
    return Statement(where, claim, word, plain(text), seeds or seeds_of(found), found, ours)


def tally(statements: Sequence[Statement]) -> str:
    """How many rows there are of each verdict, and how many findings these are."""
    several = {HOLDS: "hold", FAILS: "do not hold"}
    told = []
    for word in WORDS:
        rows = [one for one in statements if one.verdict == word]
        verb = word if len(rows) == 1 else several.get(word, word)
        found = findings(rows)
        of = f" ({found} finding{'s' * (found != 1)})" if found < len(rows) else ""
        told += [f"{len(rows)} {verb}{of}"] * bool(rows)
    return ", ".join(told)


def findings(statements: Sequence[Statement]) -> int:
    """Rows, but those once that are readings of one claim."""
    keys = [(one.where, one.finding) for one in statements]
    return sum(not finding for _, finding in keys) + len({key for key in keys if key[1]})


def verdict_of(text: str | None) -> str:
    """A sentence of several verdicts holds if all do, and fails if one does."""
    if text is None or text.startswith(NOT_MEASURED):
        return NOT_MEASURED
    words = re.findall(rf"\*\*({HOLDS}|{FAILS}|{OPEN})\*\*", text)
    return together(words) if words else NOT_JUDGED


def plain(text: str | None) -> str:
    """A sentence without its verdict, where it begins with one."""
    if text is None:
        return "–"
    said = re.sub(rf"^(?:\*\*(?:{HOLDS}|{FAILS}|{OPEN})\*\*|{NOT_JUDGED})[:,]?\s*", "", text)
    return said.removeprefix("(").removesuffix(")") if wrapped(said) else said or "–"


def wrapped(text: str) -> bool:
    """Whether one pair of brackets is around it all."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and at < len(text) - 1:
            return False
    return True


def seeds_of(records: Iterable[Data]) -> int:
    """How many different ones: seeds, or draws where a record is one of these."""
    found: set[int] = set()
    for record in records:
        told = record.get("seeds") or ([record["draw"]] if "draw" in record else [])
        if isinstance(told, dict):  # a span: its first and how many
            told = range(int(told.get("first", 0)), int(told.get("first", 0)) + int(told["count"]))
        found.update(int(one) for one in told)
    return len(found)


def records_of(cells: Iterable[Trained]) -> list[Data]:
    return [run.meta for one in cells for run in one.runs.values()]
