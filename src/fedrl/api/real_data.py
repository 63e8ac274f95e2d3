"""`fedrl.data_sets` and `fedrl.fetch_data`: real data, from its publisher."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class DataSet(NamedTuple):
    """A data set that fedrl can read; `place` is None where it is not on this machine."""

    title: str
    size: int  # bytes
    licence: str
    place: Path | None


def data_sets() -> dict[str, DataSet]:
    """All of them, by name."""
    from fedrl.datasets import DATASETS
    from fedrl.datasets.fetch import place, present

    return {
        name: DataSet(each.title, each.size, each.licence, place(name) if present(name) else None)
        for name, each in DATASETS.items()
    }


def fetch_data(name: str, *, yes: bool = False) -> Path:
    """Download a data set that is not there yet and check its sha256; the folder.

    `yes` agrees to its publisher's terms, which are otherwise asked about on a terminal.
    """
    from fedrl.datasets.fetch import fetch

    return fetch(name, yes)
