"""Files for their owner's eyes only: a node's keys, and what it remembers of what it has told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrl.core import file_locks
from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.types import UserError


class StateError(Exception):
    """One line that may be told to the server."""


def write_private(path: Path, data: bytes) -> None:
    """For the owner's eyes only, as the folder is."""
    for folder in (path.parent.parent, path.parent):  # parents that `mkdir` makes are everybody's
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, data, OWNER_ONLY)


def require_new(path: Path) -> None:
    """`UserError` where something lies that would be written over."""
    try:
        there = path.exists()
    except OSError as error:  # of a folder that is somebody else's
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    if there:
        raise UserError(f"{path} is there already; remove it first if it may go")


def create_private(path: Path, data: bytes) -> None:
    """A new file that only its owner can read; an old one is never written over."""
    try:
        require_new(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
        except OSError:  # a full disk: half a file would stand in the way of the next try
            path.unlink()
            raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time in what a node remembers: two of one folder must not both say yes."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Who can open the file, to read it too, could lock it and never let go.
    descriptor = os.open(folder / "memory.lock", os.O_RDWR | os.O_CREAT, 0o600)
    with open(descriptor, "a") as lock:
        os.fchmod(descriptor, 0o600)
        file_locks.lock(lock)
        yield
