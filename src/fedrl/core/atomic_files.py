"""Files that are all there or not at all, also if the power goes."""

from __future__ import annotations

import os
from pathlib import Path

OWNER_ONLY = 0o600


def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write beside, sync, rename, sync the folder; `mode` 0o600 is for the owner's eyes only."""
    beside = path.with_name(f".{path.name}.part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as file:
        if mode == OWNER_ONLY:  # a half that a kill left behind keeps the mode it had
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_private(folder: Path) -> bool:
    """Whether only its owner may enter."""
    return not folder.stat().st_mode & 0o077


def set_aside(path: Path) -> Path:
    """Rename to NAME.damaged, or .damaged2, …: what was set aside before stays, too."""
    place = free_name(path)
    path.rename(place)
    return place


def free_name(path: Path) -> Path:
    """Where a damaged file can be kept beside its old place."""
    place, number = path.with_name(f"{path.name}.damaged"), 2
    while os.path.lexists(place):
        place, number = path.with_name(f"{path.name}.damaged{number}"), number + 1
    return place


def kind_of(path: Path) -> str:
    """What lies there, in words; "" for a file or nothing."""
    if not os.path.lexists(path) or path.is_file():
        return ""
    if path.is_symlink() and not path.exists():
        return "a link that leads nowhere"
    return "a folder" if path.is_dir() else "no ordinary file"
