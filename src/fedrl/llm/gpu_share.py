"""Several processes share a GPU by what they say they need, before they load anything.

A reservation is an entry in a small file of the GPU, in a folder of the user under the system's
temporary one, read and written under a file lock:

    capacity   the GPU's memory less what others hold that did not reserve
    admitted   if all live reservations and the new one fit into the capacity
    waits      if they do not, and says so, once a minute; entries of dead processes are dropped
    refused    (`TooLarge`) if it would not fit alone

What others hold is only seen where nobody has a reservation: later what is used cannot be told
apart from what was reserved. It counts as it was seen then, less if less is used by now, more if
more is used than all reservations explain. A process that has a reservation does not wait for
another one: two that wait for each other would do so for ever.

`FEDRL_GPU_SHARE=off` reserves nothing and refuses nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedrl.core import file_locks
from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.types import UserError

SHARE = "FEDRL_GPU_SHARE"
POLL_SECONDS = 2.0
SAY_SECONDS = 60.0
MEBIBYTE = 2**20


class Gpu(NamedTuple):
    name: str  # the same in all processes: its UUID, where PyTorch tells it
    total: int  # bytes
    free: int


class TooLarge(Exception):
    """It would not fit alone; `available` bytes are what the GPU has for it."""

    def __init__(self, index: int, needed: int, available: int) -> None:
        super().__init__(f"GPU {index}: {needed} bytes are needed, {available} can be had")
        self.index, self.needed, self.available = index, needed, available


class Busy(Exception):
    """It did not fit beside the others for as long as there was patience."""


class Entry(NamedTuple):
    key: str
    pid: int
    born: str  # when the process began: a number is given to another process one day
    bytes: int


class Reservation:
    """On some GPUs, until it is released or its process ends."""

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        self.names: list[str] = []

    def release(self) -> None:
        while self.names:
            with _opened(self.names.pop()) as state:
                state.entries = [entry for entry in state.entries if entry.key != self.key]


def is_off() -> bool:
    return os.environ.get(SHARE, "").lower() == "off"


def reserve(
    wanted: Mapping[int, int],
    say: Callable[[str], None],
    patience: float | None = None,
    look: Callable[[int], Gpu] | None = None,
) -> Reservation:
    """So many bytes on these GPUs; waits for room, `patience` seconds at most if it is given."""
    look, reservation = look or gpu_of, Reservation()
    try:
        for index in sorted(wanted):  # in one order everywhere: nobody waits in a circle
            _reserve_one(reservation, index, wanted[index], say, patience, look)
    except BaseException:
        reservation.release()
        raise
    return reservation


def _reserve_one(
    reservation: Reservation,
    index: int,
    needed: int,
    say: Callable[[str], None],
    patience: float | None,
    look: Callable[[int], Gpu],
) -> None:
    started = time.monotonic()
    told = float("-inf")
    while True:
        gpu = look(index)
        with _opened(gpu.name) as state:
            others = state.held_by_others(gpu.total - gpu.free)
            reserved = sum(entry.bytes for entry in state.entries)
            mine = any(entry.pid == os.getpid() for entry in state.entries)
            capacity = gpu.total - others
            if needed > gpu.total or (not state.entries and needed > capacity):
                raise TooLarge(index, needed, capacity)
            if mine or reserved + needed <= capacity:
                entry = Entry(reservation.key, os.getpid(), _born(os.getpid()), needed)
                state.entries.append(entry)
                reservation.names.append(gpu.name)
                return
            count = len({entry.pid for entry in state.entries})
        now = time.monotonic()
        words = (
            f"GPU {index} has no room for {needed / 1e9:.1f} GB beside {reserved / 1e9:.1f} GB "
            f"that {count} other process{'es have' if count > 1 else ' has'} reserved, of "
            f"{capacity / 1e9:.1f} GB"
        )
        if patience is not None and now - started >= patience:
            raise Busy(words)
        if now - told >= SAY_SECONDS:
            say(f"{words}: waiting ({SHARE}=off does not)")
            told = now
        time.sleep(POLL_SECONDS)


# The file of a GPU


class _State:
    """What a GPU's file holds."""

    def __init__(self, others: int | None, entries: list[Entry]) -> None:
        self.others, self.entries = others, entries

    def held_by_others(self, used: int) -> int:
        """Of what is used, what nobody who is live has reserved."""
        if not self.entries:
            self.others = used
            return used
        self.others = min(self.others or 0, used)
        return max(self.others, used - sum(entry.bytes for entry in self.entries))


@contextlib.contextmanager
def _opened(name: str) -> Iterator[_State]:
    """The file's contents, without the dead, for one process at a time; written on leaving."""
    folder = _folder()
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


def _read(path: Path) -> _State:
    try:
        held = json.loads(path.read_bytes())
        entries = [Entry(*entry) for entry in held["held"]]
        return _State(held["others"], [entry for entry in entries if _lives(entry)])
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # the first, or damaged
        return _State(None, [])


def _folder() -> Path:
    """The user's own: what lies in the temporary folder may be anybody's."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"fedrl-gpus-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != owner):
        raise UserError(f"{folder} is not this user's folder: remove it, or set {SHARE}=off")
    return folder


def _lives(entry: Entry) -> bool:
    try:
        os.kill(entry.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's: the number was given away
    return _born(entry.pid) == entry.born


def _born(pid: int) -> str:
    """In the system's ticks; nothing where there is no /proc."""
    try:
        about = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if about[0] in "ZX" else about[19]  # a zombie holds nothing


# What the GPU says


def gpu_of(index: int) -> Gpu:
    """By nvidia-smi, if it is there: PyTorch's own question makes a context, which takes half a
    gigabyte in every process that waits."""
    about = torch.cuda.get_device_properties(index)
    name = str(getattr(about, "uuid", "") or f"index-{index}")
    used = _used().get(name.removeprefix("GPU-"))
    if used is None:
        free, total = torch.cuda.mem_get_info(index)
        return Gpu(name, total, free)
    return Gpu(name, about.total_memory, max(about.total_memory - used, 0))


def _used() -> dict[str, int]:
    asked = ["nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split(",") for line in said.splitlines())
    return {
        row[0].strip().removeprefix("GPU-"): int(row[1]) * MEBIBYTE
        for row in rows
        if len(row) == 2 and row[1].strip().isdigit()
    }
