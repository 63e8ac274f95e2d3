"""Tasks to deal out, and how they were."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedrl.partition import Settings, draw_labels, partition


class Task(NamedTuple):
    id: str
    category: str
    scene: str = ""


def pool(count: int, categories: int = 4, scenes: int = 12) -> list[Task]:
    """Categories of unlike sizes; ids that begin with the category, as real ones do."""
    share = np.arange(1, categories + 1) / sum(range(1, categories + 1))
    ends = np.round(np.cumsum(share) * count)
    kinds = np.searchsorted(ends, np.arange(count), side="right")
    return [Task(f"kind{c}/{i:05d}", f"kind{c}", f"room{i % scenes}") for i, c in enumerate(kinds)]


def made(strategy: str, tasks: list[Task], clients: int, seed: int = 0, **options):
    labels = draw_labels(tasks, 0.5, 7) if strategy == "hardness" else None
    return partition(tasks, clients, Settings(strategy=strategy, **options), seed, labels)
