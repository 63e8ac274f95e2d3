"""The logs of a run, and what a checkpoint remembers of them: how long they were, and a hash.

`metrics.jsonl` is the run's result: a resumed run promises its bytes, so it goes on only after the
very lines that the checkpoint remembers, or if it is told to go on without them. Nothing depends on
the others: where they lost lines, the run goes on and says so. A log that lost lines is no damaged
checkpoint. What cannot be read of a log is kept beside it. `episodes.jsonl` is there once there is
an episode in it: only evaluations of language agents have any.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fedrl.core.atomic_files import free_name, write_atomically
from fedrl.core.types import Metrics, Tables

METRICS = "metrics.jsonl"
EPISODES = "episodes.jsonl"
LOGS = (METRICS, "clients.jsonl", "timings.jsonl", EPISODES)


class Mark(NamedTuple):
    """A log at the time of a checkpoint; those of older versions have no hash."""

    length: int = 0
    digest: str | None = None


class Marks(NamedTuple):
    """What a checkpoint's notes say of all logs."""

    lengths: Mapping[str, int]
    digests: Mapping[str, str]


def marks(notes: Tables) -> dict[str, Mark]:
    """Of every log, from a checkpoint's notes."""
    lengths, digests = notes.get("lengths", {}), notes.get("digests", {})
    return {name: Mark(lengths.get(name, 0), digests.get(name)) for name in LOGS}


def trouble(path: Path, mark: Mark, last: int) -> str:
    """How a log is not what a checkpoint of round `last` remembers; nothing if it is."""
    data = _start(path, mark.length)
    if len(data) < mark.length:
        return f"has {len(data):,} of the {mark.length:,} bytes"
    if mark.digest is None:
        lines = readable(data)
        if data.count(b"\n") != len(lines) or data[-1:] not in (b"", b"\n"):
            return "has lines that cannot be read, instead of those"
        ended = json.loads(lines[-1])["round"] if lines else -1
        return "" if ended == last or path.name != METRICS else "has other rounds than those"
    return "" if hashlib.sha256(data).hexdigest() == mark.digest else "has other bytes than those"


def _start(path: Path, length: int) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as log:
        return log.read(length)


def readable(data: bytes, last: float = math.inf) -> list[bytes]:
    """Lines that hold an object with a whole round, up to round `last`."""
    lines = []
    for line in data.split(b"\n")[:-1]:  # a line without an end was cut
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict) and type(found.get("round")) is int:
                lines += [line] if found["round"] <= last else []
    return lines


def last_round(path: Path) -> int:
    """The last one in a log that can be read; −1 if there is none."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    found = (readable(line + b"\n") for line in reversed(lines))
    return next((int(json.loads(line[0])["round"]) for line in found if line), -1)


def mend(path: Path, last: int, mode: int) -> int:
    """Leave the lines that can be read up to round `last`, and what was there beside it.

    Returns how many bytes that leaves.
    """
    before = path.read_bytes() if path.is_file() else b""
    after = b"".join(line + b"\n" for line in readable(before, last))
    if after != before:
        write_atomically(free_name(path), before, mode)
        write_atomically(path, after, mode)
    return len(after)


class Logs:
    """The open logs: lines are added at their ends, and their lengths and hashes are known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settled = {-1: Marks(dict.fromkeys(LOGS, 0), {})}
        self._hashes = {name: hashlib.sha256() for name in LOGS}
        self._files: dict[str, BinaryIO] = {}
        self._mode = 0o666

    def open(self, lengths: Mapping[str, int], mode: int, last: int = -1) -> Metrics:
        """Cut them to these lengths, of round `last`; the last value of every metric left."""
        latest: Metrics = {}
        self._mode = mode
        for name in LOGS:
            if name == EPISODES and not (self.folder / name).exists():
                continue
            data = self._open(name, lengths[name])
            if name == METRICS:
                for line in readable(data):
                    latest |= json.loads(line)
        self.settle(last)
        latest.pop("round", None)
        return latest

    def _open(self, name: str, length: int) -> bytes:
        """Cut to this length, or made; what is left in it."""
        path = self.folder / name
        with open(os.open(path, os.O_RDWR | os.O_CREAT, self._mode), "r+b") as log:
            data = log.read(length)
            log.truncate(len(data))
        self._hashes[name] = hashlib.sha256(data)
        self._files[name] = path.open("ab")
        return data

    def append(self, name: str, records: Iterable[Tables]) -> None:
        data = b"".join(json.dumps(plain(record)).encode() + b"\n" for record in records)
        if name not in self._files:
            if not data:
                return
            self._open(name, 0)
        self._files[name].write(data)
        self._files[name].flush()
        self._hashes[name].update(data)

    def settle(self, last: int) -> None:
        """What is in them now is what a checkpoint of round `last` remembers.

        Ctrl-C may come between a round's lines and its checkpoint, which then is of the round
        before: so the marks of both are kept, and change in one step.
        """
        lengths = {n: os.fstat(log.fileno()).st_size for n, log in self._files.items()}
        digests = {name: self._hashes[name].hexdigest() for name in self._files}
        self._settled = dict([*self._settled.items()][-1:]) | {last: Marks(lengths, digests)}

    def marks(self, last: int) -> Marks:
        """Of round `last`; those of now if it has left no lines."""
        return self._settled.get(last, [*self._settled.values()][-1])

    def sync(self) -> None:
        for log in self._files.values():
            os.fsync(log.fileno())

    def close(self) -> None:
        for log in self._files.values():
            with contextlib.suppress(OSError):  # a full disk was said already
                log.close()
        self._files = {}


def plain(value: Any) -> Any:
    """Numbers that JSON knows: NaN and infinities become null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
