"""Tasks with labels for partitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedrl.partition import (
    draw_labels,
)


class Task(NamedTuple):
    id: str
    category: str
    scene: str = ""


def pool(count: int = 1200) -> list[Task]:
    """Six unlike categories; ids that begin with the category, as real ones do."""
    kinds = np.random.default_rng(0).choice(6, count, p=[0.23, 0.22, 0.18, 0.15, 0.13, 0.09])
    return [Task(f"kind{c}/{i:05d}", f"kind{c}", f"room{i % 24}") for i, c in enumerate(kinds)]


TASKS = pool()


LABELS = draw_labels(TASKS, 0.4, 1)
