"""`fedrl data`: what data sets there are and where they lie; `fedrl data NAME`: get one."""

from __future__ import annotations

from rich.filesize import decimal

from fedrl.datasets import DATASETS
from fedrl.datasets.fetch import doubt, fetch, place, present


def command(name: str | None, yes: bool = False) -> int:
    """Print the list, or get `name` and print its folder."""
    if name is not None:
        print(fetch(name, yes))
        return 0
    if doubted := doubt():
        print(f"{doubted}\n")
    for known, dataset in DATASETS.items():
        print(f"{known:<14}{dataset.title}")
        print(f"{'':<14}{decimal(dataset.size)}; licence: {dataset.licence}")
        where = place(known) if present(known) else f"not here; fedrl data {known}"
        print(f"{'':<14}{where}")
    return 0
