"""What a node's own data was when it gave its first update to each run: a run goes on with that, or
its client says that it has changed. A new run, also of the same recipe, takes the data as it is.
And what a node says where its data is not where a recipe looks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrl.config.schema import Config
from fedrl.core.private_files import write_private
from fedrl.core.types import Shareable, UserError
from fedrl.engines.flower.owner_log import say
from fedrl.partition import own_folders

BOOK = "own_data"
MOST = 100
"""Runs that are remembered, the latest ones: a coordinator chooses their names."""

NOT_THERE = (
    "its --data has nothing under the name of world.source: --data is the folder in which that lies"
)


def check(folder: Path, run: str, data: Path) -> str:
    """The data's digest; refused if it is no longer what this run began with."""
    now = own_folders.digest(data)
    if _read(folder).get(run, now) != now:
        raise UserError(Shareable(own_folders.CHANGED))
    return now


@contextmanager
def naming(data: Path | None, config: Config) -> Iterator[None]:
    """Where what was to be built failed because nothing lies in the data's folder under the name
    that the recipe has for it, say that, and which folder it should be; to the owner what is
    missing."""
    try:
        yield
    except UserError as error:
        source = getattr(config.world, "source", "")
        if data is None or config.partition.strategy != "own" or Path(data, source).exists():
            raise
        say(f"there is no {Path(data, source)}, which this recipe names (world.source)")
        raise UserError(Shareable(NOT_THERE)) from error


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
