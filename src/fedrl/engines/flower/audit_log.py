"""What a node or a coordinator did and refused: an append-only log that shows what is done to it.

    audit.jsonl, audit.head    entries of a hash chain (`core/chained_lines.py`), with a number each

    changed      its hash is not that of its text, or the next one does not follow from it
    removed      the numbers have a gap
    moved        the numbers go back
    truncated    fewer entries than the head says
    killed       the beginning of an entry at the end: no damage, and gone with the next entry

An entry is on disk before what it tells of leaves the machine. Refusals cost their sender little,
so only so many a minute are written in full; later ones are counted in the next entry (`untold`).
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from fedrl.core.chained_lines import ChainedLines, Damage, Read, Tail
from fedrl.core.private_files import StateError, locked
from fedrl.core.types import Json, JsonValue
from fedrl.engines.flower.owner_log import MOST, Seldom

NAME = "audit"
REFUSALS = MOST
"""A minute, in full."""


class AuditLog:
    """The log in a folder. Several processes may write it; each entry is whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = ChainedLines(folder, NAME)
        self._tail: Tail | None = None  # as far as this process knows
        self._stamp: tuple[int, int] | None = None  # of the file then: its size and time
        self._seldom: defaultdict[str, Seldom] = defaultdict(lambda: Seldom(REFUSALS))

    def add(self, event: str, **fields: JsonValue) -> None:
        """On disk when this returns. `StateError` if the log is damaged, `OSError` if it cannot be
        written: what it would tell of must not happen then."""
        with locked(self.folder):
            tail = self._current()
            if not tail.count:
                # Whoever is told a hash of this log cannot try out what it is of.
                self._write(tail, {"event": "begin", "log": secrets.token_hex(16)})
            kinds = list(self._seldom.values())  # another thread may meet a new one
            count = sum(one.untold for one in kinds)
            untold: dict[str, JsonValue] = {"untold": count} if count else {}
            self._write(tail, {"event": event, **fields, **untold})
            for one in kinds:
                one.untold = 0

    def refuse(self, event: str, **fields: JsonValue) -> None:
        """The same for what anybody can cause at no cost."""
        if self.admits(event):
            self.add(event, **fields)

    def admits(self, event: str) -> bool:
        """Whether one more of these may be written in this minute; if not, it is counted. Each kind
        has a number of its own: whoever causes one of them hides no other."""
        return self._seldom[event].admits()

    def highest(self, key: str) -> int:
        """The largest number under this key in the log so far."""
        with locked(self.folder):
            entries = self._whole().entries
        found = [entry[key] for entry in entries if key in entry]
        return max((number for number in found if isinstance(number, int)), default=0)

    def _write(self, tail: Tail, fields: Mapping[str, JsonValue]) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._lines.append({"n": tail.count, "time": when, **fields}, tail)
        self._stamp = self._now()

    def _current(self) -> Tail:
        """Where the log ends, read again where another process has written. Its entries are not
        kept in memory: a coordinator can make there be any number."""
        known = self._tail
        if known is None or self._now() != self._stamp or self._head() != known:
            self._tail, now = None, self._now()
            known = self._whole().tail
            self._tail, self._stamp = known, now
        return known

    def _whole(self) -> Read:
        found = self._lines.read()
        if damage := findings(found):
            raise StateError(f"its audit log is damaged: {in_words(damage[0])}")
        return found

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self._lines.lines.stat()
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns

    def _head(self) -> Tail | None:
        """By the head's file, and as long as the file of lines is."""
        try:
            count, last = self._lines.head.read_text(encoding="ascii").split()
            return Tail(int(count), last, self._lines.lines.stat().st_size)
        except (FileNotFoundError, ValueError):
            return None


def read(folder: Path) -> tuple[list[Json], list[Damage], str]:
    """The entries of a folder's log, what is wrong with it, and its head: count and hash."""
    found = ChainedLines(folder, NAME).read()
    return found.entries, findings(found), f"{found.tail.count}:{found.tail.last}"


def holds(folder: Path, head: str) -> bool:
    """Whether the log goes on from a head that was kept elsewhere."""
    count, _, chain = head.partition(":")
    found = ChainedLines(folder, NAME).read()
    return count.isdecimal() and found.has(int(count), chain) and not findings(found)


def findings(read: Read) -> list[Damage]:
    """All that is wrong, in the order of the entries: what was done, as far as numbers tell."""
    found = {damage.line: damage for damage in read.damage}
    expected = 0
    for line, entry in enumerate(read.entries):
        number = entry.get("n")
        if not isinstance(number, int) or isinstance(number, bool):
            found.setdefault(line, Damage(line, "is not as it was written"))
            expected += 1
            continue
        if number > expected:
            several = f"entries {expected} to {number - 1} are" if number - expected > 1 else ""
            found[line] = Damage(line, f"{several or f'entry {expected} is'} missing before it")
        elif number < expected:
            found[line] = Damage(line, f"has the number {number}: moved, or put in again")
        expected = number + 1
    return [found[line] for line in sorted(found, key=lambda line: (line < 0, line))]


def in_words(damage: Damage) -> str:
    return damage.what if damage.line < 0 else f"line {damage.line + 1} {damage.what}"
