"""One process at a time in a file: flock where the system has it, msvcrt's locking where not.

A lock ends with its file: closed, or its process killed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import IO, Any

WINDOWS = sys.platform == "win32"


def lock(file: IO[Any] | int, wait: bool = True) -> None:
    """Have the open file for oneself; a BlockingIOError if another has it and nobody waits."""
    descriptor = file if isinstance(file, int) else file.fileno()
    (_windows if WINDOWS else _unix)(descriptor, wait)


def _unix(descriptor: int, wait: bool) -> None:
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _windows(descriptor: int, wait: bool) -> None:
    """A byte far behind the end stands for the file: locked bytes cannot be read by others."""
    system = importlib.import_module("msvcrt")
    locking: Callable[[int, int, int], None] = system.locking
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, 2**30, os.SEEK_SET)
        while True:
            try:
                locking(descriptor, system.LK_NBLCK, 1)
                return
            except OSError as error:
                if not wait:
                    raise BlockingIOError(*error.args) from error
                time.sleep(0.05)
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)
