"""How unlike the clients of a partition are, and how unlike chance alone would make them.

Small clients look peculiar whatever they hold: five tasks cannot mirror six categories. So a
distance comes with its `_chance`, what uniform draws of the same sizes have on average, computed
exactly. A knob that leaves a characteristic alone leaves the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from fedrl.core.types import UserError
from fedrl.partition.labels import successes
from fedrl.partition.settings import TaskLike


@dataclass(frozen=True)
class Measures:
    """Heterogeneity of a partition; success rates are None without labels."""

    clients: int
    tasks: int  # in the pool
    categories: int
    scenes: int
    # Total variation distance of a client's category shares to the pool's, mean over clients: the
    # share of its tasks that would have to change.
    category_divergence: float
    category_chance: float
    # The same for scenes.
    scene_divergence: float
    scene_chance: float
    # Tasks per client: mean, standard deviation over clients, fewest and most.
    size_mean: float
    size_std: float
    size_min: int
    size_max: int
    # Share of a client's tasks that succeed: the pool's, the clients' mean and their deviation.
    success_pool: float | None
    success_mean: float | None
    success_std: float | None
    success_chance: float | None
    # Share of the pool that some client holds.
    coverage: float
    # Probability that another client holds a client's task too, over all pairs and tasks.
    overlap: float

    @property
    def size_variance(self) -> float:
        return self.size_std**2

    @property
    def success_variance(self) -> float | None:
        return None if self.success_std is None else self.success_std**2

    @property
    def clients_per_task(self) -> float:
        """Mean over the tasks that some client holds."""
        covered = self.coverage * self.tasks
        return self.clients * self.size_mean / covered if covered else 0.0


@dataclass(frozen=True)
class Table:
    """A partition in numbers: which task lies with which client, one entry per placement."""

    task: np.ndarray
    client: np.ndarray
    sizes: np.ndarray  # [K]

    def counts(self, codes: np.ndarray) -> np.ndarray:
        """How many tasks of each code every client holds [K, C]."""
        kinds = int(codes.max()) + 1
        cells = np.bincount(
            self.client * kinds + codes[self.task], minlength=len(self.sizes) * kinds
        )
        return cells.reshape(len(self.sizes), kinds)


def tabulate(partition: Sequence[Sequence[str]], tasks: Sequence[TaskLike]) -> Table:
    place = {task.id: index for index, task in enumerate(tasks)}
    sizes = np.array([len(row) for row in partition], dtype=np.int64)
    try:
        task = np.fromiter(
            map(place.__getitem__, chain.from_iterable(partition)), np.int64, int(sizes.sum())
        )
    except KeyError as error:
        raise UserError(f"the partition holds a task that the world lacks: {error}") from error
    return Table(task, np.repeat(np.arange(len(sizes)), sizes), sizes)


def measure(
    partition: Sequence[Sequence[str]],
    tasks: Sequence[TaskLike],
    labels: Mapping[str, bool] | None = None,
) -> Measures:
    table = tabulate(partition, tasks)
    sizes, clients = table.sizes, len(table.sizes)
    category = codes([task.category for task in tasks])
    scene = codes([task.scene for task in tasks])
    category_found, category_chance = divergence(table, category)
    scene_found, scene_chance = divergence(table, scene)
    holders = np.bincount(table.task, minlength=len(tasks))
    pairs = (clients - 1) * int(sizes.sum())
    success = None if labels is None else rates(table, successes(tasks, labels))
    return Measures(
        clients=clients,
        tasks=len(tasks),
        categories=int(category.max()) + 1,
        scenes=int(scene.max()) + 1,
        category_divergence=category_found,
        category_chance=category_chance,
        scene_divergence=scene_found,
        scene_chance=scene_chance,
        size_mean=float(sizes.mean()),
        size_std=float(sizes.std()),
        size_min=int(sizes.min()),
        size_max=int(sizes.max()),
        success_pool=success[0] if success else None,
        success_mean=success[1] if success else None,
        success_std=success[2] if success else None,
        success_chance=success[3] if success else None,
        coverage=float(np.count_nonzero(holders) / len(tasks)),
        overlap=float((holders * (holders - 1)).sum() / pairs) if pairs else 0.0,
    )


def codes(names: Sequence[str]) -> np.ndarray:
    """Each name's place in the order of names."""
    return np.unique(np.array(names, dtype=str), return_inverse=True)[1]


def divergence(table: Table, kind: np.ndarray) -> tuple[float, float]:
    """Mean total variation distance of the clients' shares to the pool's, found and by chance."""
    if not table.task.size:
        return 0.0, 0.0
    room = np.bincount(kind)
    share = room / len(kind)
    # Only what a client holds is looked at: ten thousand clients × a thousand scenes are many
    # empty cells. Σ|s − p| = Σ over held (|s − p| − p) + 1, since Σp = 1.
    cells, counts = tally(table.client * len(room) + kind[table.task], len(table.sizes) * len(room))
    client, held = np.divmod(cells, len(room))
    off = np.abs(counts / table.sizes[client] - share[held]) - share[held]
    sizes, times = np.unique(table.sizes[table.sizes > 0], return_counts=True)
    measured = (off.sum() / times.sum() + 1) / 2
    rooms, alike = np.unique(room, return_counts=True)
    by_size = mean_deviation(sizes[:, None], rooms, len(kind)) @ alike / sizes / 2
    return float(measured), float(by_size @ times / times.sum())


def tally(values: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers below `limit` that occur, and how often: counted, or sorted if they are few."""
    if limit > 4 * len(values):
        return np.unique(values, return_counts=True)
    counts = np.bincount(values, minlength=limit)
    seen = np.flatnonzero(counts)
    return seen, counts[seen]


def mean_deviation(drawn: np.ndarray, marked: np.ndarray, pool: int) -> np.ndarray:
    """E|X − EX| of the number X of marked items among `drawn` of the pool without replacement.

    2 m (N − M − n + m) / N · P(X = m) with m = ⌊nM/N⌋ + 1, a telescoping sum as de Moivre found for
    the binomial law (Diaconis and Zabell, 1991).
    """
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, pool + 2)))])
    unmarked = pool - marked
    m = drawn * marked // pool + 1
    can = (m <= drawn) & (m <= marked) & (drawn - m <= unmarked)  # else X never exceeds its mean
    m = np.where(can, m, np.maximum(drawn - unmarked, 0))

    def log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
        return log_factorial[n] - log_factorial[k] - log_factorial[n - k]

    log_p = log_choose(marked, m) + log_choose(unmarked, drawn - m)
    log_p -= log_choose(np.asarray(pool), drawn)
    return np.where(can, 2 * m * (unmarked - drawn + m) / pool * np.exp(log_p), 0.0)


def rates(table: Table, successful: np.ndarray) -> tuple[float, float, float, float]:
    """Success rate of the pool; mean and deviation of the clients' rates, and that by chance."""
    held = table.sizes > 0
    sizes = table.sizes[held]
    won = np.bincount(table.client[successful[table.task]], minlength=len(table.sizes))[held]
    rate = won / sizes
    pool, tasks = float(successful.mean()), len(successful)
    noise = pool * (1 - pool) / sizes * (tasks - sizes) / max(tasks - 1, 1)
    spread = float(rate.std(ddof=1)) if len(rate) > 1 else 0.0
    return pool, float(rate.mean()), spread, math.sqrt(noise.mean())
