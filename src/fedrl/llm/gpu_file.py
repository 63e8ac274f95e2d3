"""The file of a GPU, in which processes say what they have reserved there.

It lies in a folder of the user below /tmp, whatever TMPDIR says: that differs between the jobs of a
cluster, which share the GPU all the same. One process at a time reads and writes it, under a lock
beside it; entries of processes that have ended are dropped by whoever reads it next.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedrl.core import file_locks
from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.types import UserError

SHARE = "FEDRL_GPU_SHARE"
EVERYBODYS = Path("/tmp")
PARENT = EVERYBODYS if os.access(EVERYBODYS, os.W_OK) else Path(tempfile.gettempdir())
GIVEN_BACK: set[str] = set()
"""Keys of this process's reservations that nobody uses any more: whoever is in a finalizer cannot
take the lock, which this very process may have."""


CONTEXT = "context"
"""The key of CUDA's own part in a process, once no reservation of it counts that any more."""


class Entry(NamedTuple):
    key: str
    pid: int
    born: str  # when the process began: a number is given to another process one day
    bytes: int

    @property
    def reserved(self) -> bool:
        return self.key != CONTEXT


class State:
    """What a GPU's file holds."""

    def __init__(self, others: int | None, entries: list[Entry]) -> None:
        self.others, self.entries = others, entries

    def held_by_others(self, used: int) -> int:
        """Of what is used, what nobody who is live has reserved."""
        unknown = used - sum(entry.bytes for entry in self.entries)
        if any(entry.reserved for entry in self.entries):
            self.others = min(self.others or 0, used)
        else:  # contexts alone, which are used as they stand
            self.others = max(unknown, 0)
        return max(self.others, unknown)


@contextlib.contextmanager
def opened(name: str) -> Iterator[State]:
    """The file's contents, without the dead, for one process at a time; written on leaving."""
    folder = folder_of_user()
    path = folder / f"{name}.json"
    descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "a") as lock:
        file_locks.lock(lock)
        state = _read(path)
        try:
            yield state
        finally:
            held: dict[str, Any] = {"others": state.others, "held": state.entries}
            write_atomically(path, json.dumps(held).encode(), OWNER_ONLY)


def _read(path: Path) -> State:
    try:
        held = json.loads(path.read_bytes())
        entries = [Entry(*entry) for entry in held["held"]]
        live = [entry for entry in entries if entry.key not in GIVEN_BACK and lives(entry)]
        return State(held["others"], live)
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # the first, or damaged
        return State(None, [])


def folder_of_user() -> Path:
    """The user's own: what lies in the temporary folder may be anybody's."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = PARENT / f"fedrl-gpus-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != owner):
        raise UserError(f"{folder} is not this user's folder: remove it, or set {SHARE}=off")
    return folder


def lives(entry: Entry) -> bool:
    try:
        os.kill(entry.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's: the number was given away
    return born(entry.pid) == entry.born


def born(pid: int) -> str:
    """In the system's ticks; nothing where there is no /proc."""
    try:
        about = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if about[0] in "ZX" else about[19]  # a zombie holds nothing
