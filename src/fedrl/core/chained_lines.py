"""Lines that are only ever appended to, each with the hash of all before it: who changes, removes
or moves one is found out.

    NAME.jsonl   a JSON object a line, with `chain`: SHA-256 of the line before's and of this one
    NAME.head    how many lines there are and the hash of the last, written anew after each

A kill between the two leaves a line more than the head says, or the beginning of one: no damage.
The head then catches up before another line is written, so that a second kill, or a disk that is
full for a while, leaves no more than one. A line is on disk when `append` returns. Whoever can
write both files can write them anew from the start: against that, keep a head elsewhere and ask
`Read.has` for it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedrl.core.private_files import write_private
from fedrl.core.types import Json, JsonValue

CHAIN = "chain"


@dataclass(frozen=True)
class Damage:
    """What is wrong with the line of this number, from 0; -1 is the head."""

    line: int
    what: str


@dataclass
class Tail:
    """Where the next line goes: how many there are, the hash of the last, their bytes."""

    count: int = 0
    last: str = ""
    length: int = 0


@dataclass
class Read:
    """What the files hold: whole lines, the hash of each, their length in bytes, what is wrong.

    `unfinished` are bytes of a line that a kill cut short.
    """

    entries: list[Json] = field(default_factory=list)
    chains: list[str] = field(default_factory=list)
    length: int = 0
    unfinished: int = 0
    damage: list[Damage] = field(default_factory=list)

    @property
    def tail(self) -> Tail:
        return Tail(len(self.chains), self.chains[-1] if self.chains else "", self.length)

    def has(self, count: int, chain: str) -> bool:
        """Whether these lines go on from a head that was kept elsewhere."""
        return 0 < count <= len(self.chains) and self.chains[count - 1] == chain


class ChainedLines:
    """One process at a time may append (`private_files.locked`)."""

    def __init__(self, folder: Path, name: str) -> None:
        self.lines, self.head = folder / f"{name}.jsonl", folder / f"{name}.head"

    def read(self) -> Read:
        """Everything, and all that is wrong with it; goes on behind a line that is."""
        try:
            data = self.lines.read_bytes()
        except FileNotFoundError:
            data = b""
        found = Read(length=data.rfind(b"\n") + 1)
        found.unfinished = len(data) - found.length
        before = ""
        for number, line in enumerate(data[: found.length].split(b"\n")[:-1]):
            entry = _entry(line)
            told = "" if entry is None else str(entry.pop(CHAIN))
            if entry is None or _line(entry, told) != line + b"\n":
                found.damage.append(Damage(number, "is not as it was written"))
                entry = entry or {}
            elif told != _chain(entry, before):
                what = "does not follow from those before it: changed, removed, added or moved"
                found.damage.append(Damage(number, what))
            found.entries.append(entry)
            found.chains.append(told)
            before = told
        self._compare_head(found)
        return found

    def _read_head(self) -> tuple[int, str]:
        """How many lines it knows, and the hash of the last; ValueError if it is none."""
        try:
            first, last = self.head.read_text(encoding="ascii").split()
        except FileNotFoundError:
            return 0, ""
        return int(first), last

    def _compare_head(self, found: Read) -> None:
        try:
            count, last = self._read_head()
        except ValueError:
            found.damage.append(Damage(-1, "the head is none"))
            return
        more = len(found.chains) - count
        # One line more than the head knows is that of a kill in between.
        if more < 0:
            found.damage.append(Damage(-1, f"{-more} lines are missing at the end"))
        elif more > 1:
            found.damage.append(Damage(-1, f"{more} lines more than the head knows"))
        elif (found.chains[count - 1] if count else "") != last:
            found.damage.append(Damage(-1, "the head is of other lines"))

    def append(self, entry: Mapping[str, JsonValue], tail: Tail) -> None:
        """Behind the tail, which moves on; a line that a kill cut short is gone then."""
        chain = _chain(entry, tail.last)
        line = _line(entry, chain)
        if self._read_head() != (tail.count, tail.last):
            self._write_head(tail.count, tail.last)
        descriptor = os.open(self.lines, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.truncate(tail.length)
            file.seek(tail.length)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._write_head(tail.count + 1, chain)
        tail.count, tail.last, tail.length = tail.count + 1, chain, tail.length + len(line)

    def _write_head(self, count: int, last: str) -> None:
        write_private(self.head, f"{count} {last}\n".encode())


def _chain(entry: Mapping[str, JsonValue], before: str) -> str:
    return hashlib.sha256(f"{before}\n{json.dumps(entry)}".encode()).hexdigest()


def _line(entry: Mapping[str, JsonValue], chain: str) -> bytes:
    return json.dumps({**entry, CHAIN: chain}).encode() + b"\n"


def _entry(line: bytes) -> Json | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get(CHAIN), str) else None
