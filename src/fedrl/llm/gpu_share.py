"""Several processes share a GPU by what they say they need, before they load anything.

A reservation is an entry in a small file of the GPU (`gpu_file`), read and written under a lock:

    capacity   the GPU's memory less what others hold that did not reserve
    admitted   if all live reservations and the new one fit into the capacity: with all that it
               would take (`most`), else with what it cannot do without (`least`)
    waits      if they do not, and says so, once a minute; entries of dead processes are dropped
    refused    (`TooLarge`) if it would not fit alone, seen several times in a row: what a process
               that has just ended held is used for some moments more, and minutes at most: who
               has waited is refused when these are over

What others hold is only seen where nobody has a reservation: later what is used cannot be told
apart from what was reserved. It counts as it was seen then, less if less is used by now, more if
more is used than all reservations explain. What CUDA itself takes in a process that has given its
reservation back counts until that process ends. A process that has a reservation, on whichever GPU,
does not wait for another one: two that wait for each other would do so for ever. It is refused what
does not fit beside its own.

`FEDRL_GPU_SHARE=off` reserves nothing and refuses nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import queue
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from fedrl.llm import gpu_file
from fedrl.llm.gpu_file import CONTEXT, SHARE, Entry, State, born, opened
from fedrl.llm.memory import CALIBRATION

POLL_SECONDS = 2.0
SAY_SECONDS = 60.0
LOOKS = 3
"""So often in a row something must not fit alone before it is refused."""
RETURN_SECONDS = 300.0
"""So long what a process held may be used after its end: who waited for it is not refused yet."""
SETTLE_SECONDS = 0.5
"""After a model's place is given back: the model itself goes in the same moment, in any order."""
END_SECONDS = 30.0
"""At most, for what is under way when the process ends."""
MEBIBYTE = 2**20


class Gpu(NamedTuple):
    name: str  # the same in all processes: its UUID, where PyTorch tells it
    total: int  # bytes
    free: int


class Needed(NamedTuple):
    """Bytes on a GPU: what cannot be done without, and what is taken where there is room."""

    least: int
    most: int


class TooLarge(Exception):
    """It would not fit alone; `available` bytes are what the GPU has for it."""

    def __init__(self, index: int, needed: int, available: int) -> None:
        super().__init__(f"GPU {index}: {needed} bytes are needed, {available} can be had")
        self.index, self.needed, self.available = index, needed, available


class Busy(Exception):
    """It did not fit beside the others for as long as there was patience."""


class Reservation:
    """On some GPUs, until it is released or its process ends."""

    def __init__(self) -> None:
        self.key, self.pid = uuid.uuid4().hex, os.getpid()
        self.names: dict[str, int] = {}  # of the GPUs, with their numbers here
        self.whole = True  # it is of all that would be taken, on each of them

    def release(self) -> None:
        """Now. Waits for the GPU's file, so finalizers call `give_back`."""
        if os.getpid() != self.pid:  # a copy in a forked child: it is the parent's
            return
        _held.discard(self.key)
        while self.names:
            name, index = self.names.popitem()
            with opened(name) as state:
                state.entries = [entry for entry in state.entries if entry.key != self.key]
                _count_context(state, index)
        gpu_file.GIVEN_BACK.discard(self.key)

    def give_back(self) -> None:
        """From a finalizer, which may run while this very thread holds the file's lock: nothing
        here waits. This process sees it at once, the others once `_release_later` came to it."""
        if os.getpid() == self.pid:
            gpu_file.GIVEN_BACK.add(self.key)
            _held.discard(self.key)
            _given_back.put(self)


_held: set[str] = set()
"""Keys of this process's reservations, on all GPUs."""
_given_back: queue.SimpleQueue[Reservation | None] = queue.SimpleQueue()
"""None: the process ends."""
_starts = threading.Lock()
_releasing: threading.Thread | None = None
_over = threading.Event()


def _release_later() -> None:
    """Releases what was given back, for as long as the process lasts. PyTorch keeps memory that was
    freed, which nobody else could have: it is returned first, unless another model of this process
    may be capturing a CUDA graph, which that would break."""
    while True:
        gone = _given_back.get()
        if gone is None or _over.wait(SETTLE_SECONDS):
            return
        with contextlib.suppress(Exception):  # of one: the next one's others wait, too
            if not _held:
                gc.collect()  # what of the model is in a cycle
                torch.cuda.empty_cache()
            gone.release()


def _start_releasing() -> None:
    global _releasing
    with _starts:
        if _releasing is None:
            _releasing = threading.Thread(target=_release_later, daemon=True)
            _releasing.start()
            atexit.register(_end)


def _end() -> None:
    """Python ends threads wherever they are: within PyTorch that aborts the process, whatever it
    has done. Entries of a process that has ended count no longer."""
    _over.set()
    _given_back.put(None)
    if _releasing is not None:
        _releasing.join(END_SECONDS)


def is_off() -> bool:
    return os.environ.get(SHARE, "").lower() == "off"


def reserve(
    wanted: Mapping[int, Needed],
    say: Callable[[str], None],
    patience: float | None = None,
    look: Callable[[int], Gpu] | None = None,
) -> Reservation:
    """So much on these GPUs; waits for room, `patience` seconds at most if it is given."""
    look, reservation = look or gpu_of, Reservation()
    _start_releasing()  # not in a finalizer: a thread's start is waited for
    try:
        for index in sorted(wanted):  # in one order everywhere: nobody waits in a circle
            _reserve_one(reservation, index, wanted[index], say, patience, look)
    except BaseException:
        reservation.release()
        raise
    _held.add(reservation.key)
    return reservation


def _reserve_one(
    reservation: Reservation,
    index: int,
    needed: Needed,
    say: Callable[[str], None],
    patience: float | None,
    look: Callable[[int], Gpu],
) -> None:
    started, told = time.monotonic(), float("-inf")
    name, waited, hopeless, since = look(index).name, False, 0, started
    while True:
        with opened(name) as state:
            _count_context(state, index)
            gpu = look(index)  # not before: who held it then may have ended since
            room = _Room(state, gpu)
            if (size := room.granted(needed)) is not None:
                entry = Entry(reservation.key, os.getpid(), born(os.getpid()), size)
                state.entries.append(entry)
                reservation.names[name] = index
                reservation.whole &= size == needed.most
                return
        now = time.monotonic()
        waited |= room.others > 0
        hopeless = hopeless + 1 if room.is_hopeless(needed) else 0
        since = since if hopeless else now
        returned = not waited or bool(_held) or now - since >= RETURN_SECONDS
        if needed.least > gpu.total or (hopeless >= LOOKS and returned):
            raise TooLarge(index, needed.least, max(room.alone, 0))
        words = f"GPU {index} has no room for {needed.least / 1e9:.1f} GB {room}"
        if patience is not None and now - started >= patience:
            raise Busy(words)
        if (waited or not hopeless) and now - told >= SAY_SECONDS:
            say(f"{words}: waiting ({SHARE}=off does not)")
            told = now
        time.sleep(POLL_SECONDS)


def _count_context(state: State, index: int) -> None:
    """CUDA's, if this process has it on that GPU and no other entry of its own counts it."""
    here = os.getpid()
    if has_context(index) and all(entry.pid != here for entry in state.entries):
        state.entries.append(Entry(CONTEXT, here, born(here), CALIBRATION.context))


class _Room:
    """What a GPU has for this process."""

    def __init__(self, state: State, gpu: Gpu) -> None:
        here = os.getpid()
        self.capacity = gpu.total - state.held_by_others(gpu.total - gpu.free)
        self.reserved = sum(entry.bytes for entry in state.entries)
        self.others = len({e.pid for e in state.entries if e.pid != here and e.reserved})
        stays = (e.bytes for e in state.entries if e.pid == here or not e.reserved)
        self.alone = self.capacity - sum(stays)

    def granted(self, needed: Needed) -> int | None:
        for size in (needed.most, needed.least):
            if self.reserved + size <= self.capacity:
                return size
        return needed.least if _held and needed.least <= self.alone else None

    def is_hopeless(self, needed: Needed) -> bool:
        """Whether it would not fit alone, as far as can be seen: while others have reservations,
        what else is held cannot be."""
        return needed.least > self.alone and (bool(_held) or not self.others)

    def __str__(self) -> str:
        if not self.others:
            return f"beside what is held there: {self.alone / 1e9:.1f} GB can be had"
        return (
            f"beside {self.reserved / 1e9:.1f} GB that {self.others} other "
            f"process{'es have' if self.others > 1 else ' has'} reserved, of "
            f"{self.capacity / 1e9:.1f} GB"
        )


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


def has_context(index: int) -> bool:
    """Whether this process has CUDA's context on a GPU, which then counts as used there.
    `torch.cuda.is_initialized` says less: asking for a GPU's name is enough for it."""
    asked = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # of builds with CUDA
    return bool(asked and torch.cuda.is_initialized() and asked(index))


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
