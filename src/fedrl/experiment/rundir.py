"""A run's folder: everything that lasts, written so that a kill at any moment loses nothing.

    config.toml     resolved settings            metrics.jsonl   one line per round
    meta.json       command, versions, machine   clients.jsonl   one line per client and round
    log.txt         what a person reads          timings.jsonl   seconds per round (never the same)
    checkpoints/    round-NNNNNN.<sha>.safetensors, the newest few
    summary.json    the last value of every metric, when the run has ended

A checkpoint remembers how long the logs were when it was written. Resuming cuts the logs back to
that length, so that a round which was logged but not saved is logged once all the same. The file
name holds the checkpoint's hash: a torn or damaged one is found out, and the one before it is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedrl.experiment import provenance
from fedrl.experiment.checkpoint import pack, unpack
from fedrl.federation import Round, Snapshot
from fedrl.files import write_atomically
from fedrl.types import Metrics, UserError

KEPT = 3
"""Checkpoints kept: the newest, and two to fall back to."""
LOGS = ("metrics.jsonl", "clients.jsonl", "timings.jsonl")
CHECKPOINT = re.compile(r"(?:start|round-(\d+))\.([0-9a-f]{16})\.safetensors")


class RunDir:
    """The store of one run."""

    def __init__(self, path: Path, warn: Callable[[str], None] = print) -> None:
        self.path = path
        self.warn = warn
        self._lock: TextIO | None = None
        self._logs: dict[str, TextIO] = {}
        self._lengths = dict.fromkeys(LOGS, 0)
        self._latest: Metrics = {}

    # Opening and closing -------------------------------------------------------------------------

    @classmethod
    def create(cls, root: Path, method: str, seed: int, config: str) -> RunDir:
        """A new folder `<root>/<method>-s<seed>-<id>` with its configuration in it."""
        path = root / f"{method}-s{seed}-{secrets.token_hex(3)}"
        try:
            (path / "checkpoints").mkdir(parents=True)
            run = cls(path)
            run.lock()
            run.write_meta({"status": "running"} | provenance.collect())
            run.write_config(config)
        except OSError as error:
            raise UserError(
                f"cannot write to {root}: {error.strerror}; choose another folder with --out"
            ) from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        require_run(path)
        run = cls(path)
        try:
            run.lock()
        except OSError as error:
            raise UserError(f"cannot write to {path}: {error.strerror}") from error
        return run

    def lock(self) -> None:
        """One process per run: a second one would tear the logs."""
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{self.path} is in use by another fedrl process") from error

    def close(self) -> None:
        for log in self._logs.values():
            with contextlib.suppress(OSError):  # a full disk was said already
                log.close()
        self._logs = {}
        if self._lock is not None:
            self._lock.close()

    # The store -----------------------------------------------------------------------------------

    def load(self) -> Snapshot | None:
        """The newest whole checkpoint, with the logs cut back to it; None at the very start."""
        self._sweep_up()
        snapshot, lengths = self._newest()
        for name in LOGS:
            with self._writing(), (self.path / name).open("a+b") as log:
                log.truncate(min(lengths[name], log.seek(0, os.SEEK_END)))
            self._logs[name] = (self.path / name).open("a", encoding="utf-8")
        self._lengths = {name: lengths[name] for name in LOGS}
        self._latest = self._read_latest()
        return snapshot

    def _newest(self) -> tuple[Snapshot | None, dict[str, int]]:
        found = self.checkpoints()
        for path in found:
            try:
                snapshot, lengths = read_checkpoint(path)
                for name in LOGS:
                    size = (self.path / name).stat().st_size if (self.path / name).exists() else 0
                    if size < lengths[name]:
                        raise UserError(f"{name} is shorter than checkpoint {path.name} remembers")
                return snapshot, lengths
            except UserError as error:
                self.warn(f"{error}; going back to the checkpoint before it")
                path.rename(path.with_name(f"{path.name}.damaged"))
        if found:
            raise UserError(f"every checkpoint in {self.path / 'checkpoints'} is damaged")
        return None, dict.fromkeys(LOGS, 0)

    def log(self, done: Round) -> None:
        """Add a finished round to the logs; the next checkpoint knows how long they are."""
        with self._writing():
            self._append("metrics.jsonl", [{"round": done.round} | done.metrics])
            self._append("clients.jsonl", done.clients)
            seconds = {name: round(value, 6) for name, value in done.seconds.items()}
            self._append("timings.jsonl", [{"round": done.round} | seconds])
            self._lengths = {
                name: os.fstat(log.fileno()).st_size for name, log in self._logs.items()
            }
        self._latest |= done.metrics

    def log_clients(self, records: list[dict[str, Any]]) -> None:
        """Who failed in a round that never came about; cut off again when the run is resumed."""
        with self._writing():
            self._append("clients.jsonl", records)

    def checkpoint(self, snapshot: Snapshot) -> None:
        with self._writing():
            for log in self._logs.values():
                os.fsync(log.fileno())
            data = pack(snapshot, self._lengths)
            digest = hashlib.sha256(data).hexdigest()[:16]
            label = f"round-{snapshot.round:06d}" if snapshot.round >= 0 else "start"
            name = f"{label}.{digest}.safetensors"
            write_atomically(self.path / "checkpoints" / name, data)
            for old in self.checkpoints()[KEPT:]:
                old.unlink()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full or vanished disk is a sentence, and what was saved before is whole."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; "
                "what was saved before is whole"
            ) from error

    def _sweep_up(self) -> None:
        """Halves of files that a kill left behind."""
        for half in [*self.path.glob(".*.part"), *(self.path / "checkpoints").glob(".*.part")]:
            half.unlink(missing_ok=True)

    # Around a run --------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """A line for people, with the time."""
        with (self.path / "log.txt").open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")

    def finish(self, status: str, seconds: float) -> None:
        """Close the books: how it ended, how long it took, and the last value of every metric."""
        meta = self.read_meta()
        self.write_meta(
            meta | {"status": status, "seconds": round(meta.get("seconds", 0.0) + seconds, 3)}
        )
        text = json.dumps(plain(self._latest), indent=1, sort_keys=True)
        write_atomically(self.path / "summary.json", text.encode())

    def read_meta(self) -> dict[str, Any]:
        try:
            return json.loads((self.path / "meta.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            return {}  # killed before it was written: the run itself does not need it

    def write_config(self, config: str) -> None:
        write_atomically(self.path / "config.toml", config.encode())

    def write_meta(self, meta: dict[str, Any]) -> None:
        write_atomically(self.path / "meta.json", json.dumps(meta, indent=1).encode())

    def checkpoints(self) -> list[Path]:
        """Newest first."""
        found = {
            path: int(match[1] or -1)
            for path in (self.path / "checkpoints").glob("*")
            if (match := CHECKPOINT.fullmatch(path.name))
        }
        return sorted(found, key=lambda path: found[path], reverse=True)

    def _append(self, name: str, records: list[dict[str, Any]]) -> None:
        for record in records:
            self._logs[name].write(json.dumps(plain(record)) + "\n")
        self._logs[name].flush()

    def _read_latest(self) -> Metrics:
        latest: Metrics = {}
        for line in (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            latest |= json.loads(line)
        latest.pop("round", None)
        return latest


def read_checkpoint(path: Path) -> tuple[Snapshot, dict[str, int]]:
    """The snapshot and the lengths of the logs at its time; a UserError if the file is damaged."""
    data = path.read_bytes()
    match = CHECKPOINT.fullmatch(path.name)
    if match is None or hashlib.sha256(data).hexdigest()[:16] != match[2]:
        raise UserError(f"checkpoint {path.name} is damaged")
    return unpack(data)


def require_run(path: Path) -> None:
    if not path.is_dir():
        raise UserError(f"{path} does not exist; name a run's folder: runs/NAME/METHOD-s0-…")
    if not (path / "config.toml").is_file():
        raise UserError(f"{path} is no run of fedrl: it has no config.toml")


def plain(value: Any) -> Any:
    """Numbers that JSON knows: NaN and infinities become null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
