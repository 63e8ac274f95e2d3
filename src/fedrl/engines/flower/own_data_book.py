"""What a node's own data was when it gave its first update to each run: a run goes on with that, or
its client says that it has changed. A new run, also of the same recipe, takes the data as it is."""

from __future__ import annotations

import json
from pathlib import Path

from fedrl.core.private_files import write_private
from fedrl.core.types import Shareable, UserError
from fedrl.partition import own_folders

BOOK = "own_data"
MOST = 100
"""Runs that are remembered, the latest ones: a coordinator chooses their names."""


def check(folder: Path, run: str, data: Path) -> str:
    """The data's digest; refused if it is no longer what this run began with."""
    now = own_folders.digest(data)
    if _read(folder).get(run, now) != now:
        raise UserError(Shareable(own_folders.CHANGED))
    return now


def remember(folder: Path, run: str, digest: str) -> None:
    """That an update of this run was computed from this data; the first one counts."""
    known = _read(folder)
    if run not in known:
        known = dict(list(known.items())[-(MOST - 1) :]) | {run: digest}
        write_private(folder / f"{BOOK}.json", json.dumps(known).encode())


def _read(folder: Path) -> dict[str, str]:
    book = folder / f"{BOOK}.json"
    try:
        known: dict[str, str] = json.loads(book.read_text()) if book.exists() else {}
    except (OSError, ValueError) as error:
        raise UserError(f"{book} cannot be read: {error}") from error
    return known
