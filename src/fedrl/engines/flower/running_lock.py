"""One program at a time in a folder, and whether it is there: a lock that ends with its process,
however that ends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fedrl.core import file_locks
from fedrl.core.atomic_files import OWNER_ONLY
from fedrl.core.types import UserError

LOCK = "running.lock"
PATIENCE_SECONDS = 10.0
"""What a killed program has left behind ends soon."""


@contextlib.contextmanager
def alone(
    folder: Path,
    otherwise: str,
    patience: float = PATIENCE_SECONDS,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[None]:
    """Have the folder; a `UserError` with these words if another keeps it; `say` hears of it."""
    end, waits = time.monotonic() + patience, False
    # Who can open the file, to read it too, could lock it and never let go.
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
    with open(descriptor, "w") as file:
        while True:
            try:
                file_locks.lock(file, wait=False)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    raise UserError(otherwise) from error
                if not waits:
                    say(f"{folder} is in use: waiting up to {patience:g} s for that to end")
                    waits = True
                time.sleep(0.2)
        yield


def running(folder: Path) -> bool | None:
    """Whether a program has it now; None where none ever had."""
    try:
        file = (folder / LOCK).open("r")
    except FileNotFoundError:
        return None
    with file:
        try:
            file_locks.lock(file, wait=False)
        except BlockingIOError:
            return True
    return False
