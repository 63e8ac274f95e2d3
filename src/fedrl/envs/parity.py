"""What a replay of recorded transcripts found: one `Line` per file."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrl.core.types import UserError

Record = Mapping[str, Any]
"""A line of a transcript file, in the recording's own terms."""

SHOWN = 3
"""Mismatches of a file that are kept to be shown: the first ones tell the most."""


@dataclass
class Line:
    """The outcome for one file; `passed` may be more lenient than "no mismatch" (search)."""

    file: str
    unit: str = "steps"
    checked: int = 0
    mismatches: int = 0
    note: str = ""
    failed: bool = False  # by a rule of its own, beside the mismatches
    examples: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.checked > 0 and not self.failed and not self.mismatches

    def compare(self, where: str, expected: Record, got: Record) -> None:
        """Count one step; every key of `expected` must be equal."""
        self.checked += 1
        wrong = [key for key in expected if got.get(key) != expected[key]]
        if not wrong:
            return
        self.mismatches += 1
        if len(self.examples) < SHOWN:
            key = wrong[0]
            self.examples.append(f"{where}: {key} {difference(expected[key], got.get(key))}")

    def __str__(self) -> str:
        text = f"{self.file}: {self.checked} {self.unit}, {self.mismatches} mismatches"
        return f"{text}, {self.note}" if self.note else text


def difference(expected: Any, got: Any) -> str:
    """Where two values part, short enough for a terminal."""
    if isinstance(expected, list) and isinstance(got, list):
        lacking = [x for x in expected if x not in got][:2]
        added = [x for x in got if x not in expected][:2]
        if lacking or added:
            return f"lacks {lacking!r}, has {added!r} instead"
    if isinstance(expected, str) and isinstance(got, str):
        at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), 0)
        at = max(at - 20, 0)
        return f"should read {expected[at : at + 80]!r}, reads {got[at : at + 80]!r}"
    return f"should be {expected!r}, is {got!r}"


@contextmanager
def transcript(path: Path) -> Iterator[None]:
    """A record without the fields that it should have becomes one line that names the file."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{path} is not a transcript file: a record has no {error}"
            if isinstance(error, KeyError)
            else f"{path} is not a transcript file: {error}"
        ) from error


def records(path: Path) -> Iterator[Record]:
    """The JSON lines of a transcript file, compressed with xz or not."""
    try:
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError(f"a line holds {str(record)[:40]!r} instead of a record")
                yield record
    except FileNotFoundError:
        raise UserError(f"no transcript file {path}") from None
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise UserError(f"{path} is not a transcript file: {error}") from error
