"""A run's folder: everything that lasts, written so that a kill at any moment loses nothing.

    config.toml     resolved settings            metrics.jsonl   one line per round
    meta.json       command, versions, machine   clients.jsonl   one line per client and round
    log.txt         what a person reads          timings.jsonl   seconds per round (never the same)
    checkpoints/    round-NNNNNN.<sha>.safetensors, the newest few
    summary.json    the last value of every metric, when the run has ended
    episodes.jsonl  language agents: a few episodes of every evaluation, one per line

A checkpoint remembers how long the logs were when it was written, and their hashes. Resuming cuts
the logs back to that length, so that a round which was logged but not saved is logged once all the
same. The file name holds the checkpoint's hash: a torn or damaged one is found out, and the one
before it is used. A run that has begun never starts over: without a checkpoint that can be read it
is refused, and nothing in its folder is touched. Nothing damaged is thrown away: it is set aside as
NAME.damaged.

A folder that only its owner may enter has files that only its owner may read.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from fedrl.core import file_locks
from fedrl.core.atomic_files import OWNER_ONLY, is_private, kind_of, set_aside, write_atomically
from fedrl.core.types import Json, Metrics, Tables, UserError
from fedrl.federation.round_loop import Round, Snapshot
from fedrl.runs import provenance
from fedrl.runs.checkpoint import Damaged, read_checkpoint, round_of, write_checkpoint
from fedrl.runs.logs import LOGS, METRICS, Logs, Mark, last_round, marks, mend, plain, trouble

KEPT = 3
"""Checkpoints kept: the newest, and two to fall back to."""
SIGNATURE = ".sig"
"""After the name of a checkpoint: its signature (`core/signatures.py`)."""
BEGUN_FOR = "begun_for_rounds"
"""In meta.json, of a run that was resumed for more: the R that its method began with."""
FILES = (*LOGS, "config.toml", "meta.json", "summary.json", "log.txt", ".lock")


@dataclass(frozen=True)
class Recalled:
    """Where a run stands by its files, before any of them is changed."""

    snapshot: Snapshot | None = None
    marks: Mapping[str, Mark] = field(default_factory=lambda: dict.fromkeys(LOGS, Mark()))
    settings: Tables = field(default_factory=dict)
    damaged: tuple[tuple[Path, str], ...] = ()  # checkpoints to be set aside, and why
    lost: tuple[tuple[str, str], ...] = ()  # logs to be mended, and why


class RunDir:
    """The store of one run."""

    def __init__(self, path: Path, warn: Callable[[str], None] = print) -> None:
        self.path = path
        self.warn = warn
        self.settings: Tables = {}  # what a resumed run must not change
        self.pending: str | None = None  # config.toml of a resumed run that has not begun yet
        self.begun_for: int | None = None  # its rounds at first, where a resumed one has more now
        self._lock: TextIO | None = None
        self._logs = Logs(path)
        self._recalled: Recalled | None = None
        self._latest: Metrics | None = None  # None until `load`
        self._episodes: list[Json] = []  # of the evaluation of a round that is not logged yet

    # Opening and closing -------------------------------------------------------------------------

    @classmethod
    def create(
        cls, root: Path, method: str, seed: int, config: str, private: bool = False
    ) -> RunDir:
        """A new folder `<root>/<method>-s<seed>-<id>` with its configuration in it.

        `private` keeps everybody but its owner out.
        """
        path = root / f"{method}-s{seed}-{secrets.token_hex(3)}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir(0o700 if private else 0o777)
        except OSError as error:
            raise _unwritable(root, error) from error
        run = cls(path)
        try:
            (path / "checkpoints").mkdir(0o700 if private else 0o777)
            run.lock()
            run.write_meta({"status": "running"} | provenance.collect())
            run.write_config(config)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)  # it is seconds old, and no run yet
            raise _unwritable(root, error) from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        require_run(path)
        for name in FILES:
            if found := kind_of(path / name):
                raise UserError(
                    f"{path / name} is {found}, where the run has a file: put the file back, or "
                    "move this away"
                )
        if os.path.lexists(path / "checkpoints") and not (path / "checkpoints").is_dir():
            raise UserError(f"{path / 'checkpoints'} is no folder: put the run's checkpoints there")
        for name in (*LOGS, "log.txt", "checkpoints", ""):
            if os.path.exists(path / name) and not os.access(path / name, os.R_OK | os.W_OK):
                raise UserError(f"cannot write to {path / name}: Permission denied")
        run = cls(path)
        try:
            run.lock()
        except OSError as error:
            raise UserError(f"cannot write to {path}: {error.strerror}") from error
        return run

    def lock(self) -> None:
        """One process per run: a second one would tear the logs."""
        self._lock = (self.path / ".lock").open("a")
        try:
            file_locks.lock(self._lock, wait=False)
        except BlockingIOError as error:
            self._lock.close()
            raise UserError(f"{self.path} is in use by another fedrl process") from error

    def close(self) -> None:
        self._logs.close()
        if self._lock is not None:
            self._lock.close()

    # The store -----------------------------------------------------------------------------------

    def recall(self, without_lost_lines: bool = False) -> Recalled:
        """Where the run stands; a UserError, and no file changed, if it cannot go on from there.

        `without_lost_lines` goes on though lines of metrics.jsonl are lost.
        """
        found = self._newest()
        last = -1 if found.snapshot is None else found.snapshot.round
        lost = tuple(
            (name, why)
            for name, mark in found.marks.items()
            if (why := trouble(self.path / name, mark, last))
        )
        missing = dict(lost).get(METRICS)
        if missing and not without_lost_lines:
            raise UserError(
                f"{self.path / METRICS} {missing} that the checkpoint remembers: put the file "
                "back, or add --without-lost-lines to go on with what can be read of it"
            )
        self._recalled = Recalled(found.snapshot, found.marks, found.settings, found.damaged, lost)
        return self._recalled

    def _newest(self) -> Recalled:
        damaged: list[tuple[Path, str]] = []
        for path in self.checkpoints():
            try:
                snapshot, notes = read_checkpoint(path)
            except Damaged as error:
                damaged.append((path, str(error)))
                continue
            if snapshot.round < 0 and last_round(self.path / METRICS) > 0:
                break  # from the very start, although the first rounds were saved once
            return Recalled(snapshot, marks(notes), notes["settings"], tuple(damaged))
        if traces := self._traces():
            raise UserError(
                f"{self.path} has {traces[0].relative_to(self.path)}, but no checkpoint of its "
                "rounds that can be read: put one back, or begin a new run: "
                + shlex.join(["fedrl", "run", str(self.path / "config.toml")])
            )
        return Recalled()

    def _traces(self) -> list[Path]:
        """What says that the run had begun: nothing is logged before the first checkpoint."""
        logs = [self.path / name for name in (*LOGS, "summary.json")]
        saved = (path for path in self._checkpoint_files() if not path.name.endswith(".part"))
        empty = len("{}")  # the summary of a run that never came to its rounds
        return [*(log for log in logs if log.is_file() and log.stat().st_size > empty), *saved]

    def load(self) -> Snapshot | None:
        """The newest whole checkpoint, with the logs cut back to it; None at the very start."""
        found = self._recalled or self.recall()
        self._recalled = None
        last = -1 if found.snapshot is None else found.snapshot.round
        lengths = {name: mark.length for name, mark in found.marks.items()}
        with self._writing():
            (self.path / "checkpoints").mkdir(exist_ok=True)
            self._sweep_up()
            for path, why in found.damaged:
                self.warn(f"{why}; going back to the checkpoint before it")
                set_aside(path)
            if (logged := last_round(self.path / METRICS)) > last + 1:
                self.warn(f"the checkpoint is of round {last}: rounds to {logged} are done again")
            for name, why in found.lost:
                self.warn(f"{name} {why} that the checkpoint remembers; going on without those")
                lengths[name] = mend(self.path / name, last, self.mode)
            self._latest = self._logs.open(lengths, self.mode, last)
        return found.snapshot

    def log(self, done: Round) -> None:
        """Add a finished round to the logs; the next checkpoint knows how long they are."""
        with self._writing():
            self._logs.append(METRICS, [{"round": done.round} | done.metrics])
            self._logs.append("clients.jsonl", done.clients)
            line: Json = {"round": done.round} | _rounded(done.seconds)
            # tables of their own: who adds up a line's seconds passes them over
            line |= {"cpu": _rounded(done.cpu_seconds)} if done.cpu_seconds else {}
            line |= {"compile": _rounded(done.compile_seconds)} if done.compile_seconds else {}
            self._logs.append("timings.jsonl", [line])
            episodes = [{"round": done.round} | one for one in self._episodes]
            self._logs.append("episodes.jsonl", episodes)
            self._logs.settle(done.round)
        self._latest = (self._latest or {}) | done.metrics
        self._episodes = []

    def keep_episodes(self, episodes: list[Json]) -> None:
        """Of the evaluation that is under way: they are logged with its round."""
        self._episodes = episodes

    def log_clients(self, records: list[Json]) -> None:
        """Who failed in a round that never came about; cut off again when the run is resumed."""
        with self._writing():
            self._logs.append("clients.jsonl", records)

    def checkpoint(self, snapshot: Snapshot) -> None:
        notes = self._logs.marks(snapshot.round)._asdict() | {"settings": self.settings}
        with self._writing():
            self._logs.sync()
            write_checkpoint(self.path / "checkpoints", snapshot, notes, self.mode)
            self.keep(KEPT)

    def keep(self, count: int) -> None:
        """Remove all but the newest checkpoints; what is no file is not ours."""
        for old in self.checkpoints()[count:]:
            if old.is_file() or old.is_symlink():
                old.unlink()
            old.with_name(old.name + SIGNATURE).unlink(missing_ok=True)

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
            if half.is_file() or half.is_symlink():
                half.unlink()

    # Around a run --------------------------------------------------------------------------------

    def begin(self) -> None:
        """What a resumed run was told is written once nothing can refuse it any more."""
        with self._writing():
            if self.pending is not None:
                self.write_config(self.pending)
            meta = self.path / "meta.json"
            if meta.is_file() and not self.read_meta():
                self.warn(f"meta.json cannot be read; kept as {set_aside(meta).name}")
            begun = {} if self.begun_for is None else {BEGUN_FOR: self.begun_for}
            self.write_meta(begun | self.read_meta() | {"status": "running"})

    def make_private(self) -> None:
        """Keep everybody but the owner out, of what is there already, too."""
        with self._writing():
            self.path.chmod(0o700)
            for path in (*self.path.iterdir(), *self._checkpoint_files()):
                if path.is_file() and not path.is_symlink():
                    path.chmod(OWNER_ONLY)

    @property
    def mode(self) -> int:
        """Of new files: as private as the folder."""
        return OWNER_ONLY if is_private(self.path) else 0o666

    def _opener(self, path: str, flags: int) -> int:
        return os.open(path, flags, self.mode)

    def say(self, line: str) -> None:
        """A line for people, with the time."""
        said = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n"
        with (
            self._writing(),
            open(self.path / "log.txt", "ab", opener=self._opener) as file,
        ):
            file.write(said.encode(errors="replace"))

    def finish(self, status: str, seconds: float, startup: float = 0.0) -> None:
        """How it ended, how long it took in all and until its rounds began; the last metrics."""
        meta = self.read_meta()
        for name, spent in (("seconds", seconds), ("startup_seconds", startup)):
            known = isinstance(was := meta.get(name, 0.0), int | float) and math.isfinite(was)
            meta[name] = round((float(was) if known else 0.0) + spent, 3)
        self.write_meta(meta | {"status": status})
        if self._latest is not None:  # a run that never came to its rounds has nothing to sum up
            text = json.dumps(plain(self._latest), indent=1, sort_keys=True)
            write_atomically(self.path / "summary.json", text.encode(), self.mode)

    def read_meta(self) -> Json:
        """Nothing if it is damaged or was never written: the run itself does not need it."""
        try:
            found = json.loads((self.path / "meta.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_config(self, config: str) -> None:
        write_atomically(self.path / "config.toml", config.encode(), self.mode)

    def write_meta(self, meta: Json) -> None:
        write_atomically(self.path / "meta.json", json.dumps(meta, indent=1).encode(), self.mode)

    def note_meta(self, key: str, value: int | str | list[str]) -> None:
        """Something that a run learns of itself when it begins; nothing if it is known."""
        meta = self.read_meta()
        if meta.get(key) != value:
            with self._writing():
                self.write_meta(meta | {key: value})

    def checkpoints(self) -> list[Path]:
        """Newest first."""
        named = {path: round_of(path) for path in self._checkpoint_files()}
        found = {path: number for path, number in named.items() if number is not None}
        return sorted(found, key=lambda path: (found[path], path.name), reverse=True)

    def _checkpoint_files(self) -> list[Path]:
        folder = self.path / "checkpoints"
        return sorted(folder.iterdir()) if folder.is_dir() else []


def _unwritable(root: Path, error: OSError) -> UserError:
    return UserError(f"cannot write to {root}: {error.strerror}; choose another folder with --out")


def _rounded(seconds: Mapping[str, float]) -> Json:
    return {name: round(value, 6) for name, value in seconds.items()}


def require_run(path: Path) -> None:
    if not os.path.isdir(path):  # unlike Path.is_dir, also of names that are too long
        found = "is no folder" if os.path.exists(path) else "does not exist"
        raise UserError(f"{path} {found}; name a run's folder: runs/NAME/METHOD-s0-…")
    if not os.access(path, os.X_OK):
        raise UserError(f"cannot read {path}: it is another user's")
    if not os.path.isfile(path / "config.toml"):
        raise UserError(f"{path} is no run of fedrl: it has no config.toml")
