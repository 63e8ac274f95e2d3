"""`partition` and its strategies (FedAgent, Algorithms 2 and 4; Algorithm 3 is in `coverage`).

Preference, per client (Algorithm 2):
    z_c ~ N(ℓ_c, ω²), q = softmax(z), counts ~ Multinomial(L, q)
    what a category of n_c tasks cannot hold goes to the others by q
    a_c tasks of every category, without replacement

Hardness (Algorithm 4): the successful tasks are spread by CoveragePartition, then every client is
filled to exactly L with unsuccessful ones.

Inside this file tasks are numbers: their places in the order of ids.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.partition import coverage as spread
from fedrl.partition.labels import pool_of, successes
from fedrl.partition.settings import Settings, TaskLike, require_seed


def partition(
    tasks: Sequence[TaskLike],
    clients: int,
    settings: Settings,
    seed: int,
    labels: Mapping[str, bool] | None = None,
) -> list[list[str]]:
    """The ids of every client's tasks, in order; `labels` (which tasks succeed) for hardness."""
    if clients < 1:
        raise UserError(f"clients is {clients}; it must be at least 1")
    require_seed(seed)
    if settings.strategy == "own":
        raise UserError(
            'strategy is "own", which deals nothing: every client holds what its folder holds'
        )
    tasks = sorted(pool_of(tasks, settings, labels), key=lambda task: task.id)
    ids = np.array([task.id for task in tasks], dtype=object)
    for first, second in pairwise(ids):
        if first == second:
            raise UserError(f"two tasks are called {first!r}: a task needs an id of its own")
    if settings.strategy == "scenes" and not any(task.scene for task in tasks):
        raise UserError(
            "strategy is 'scenes' but these tasks have no scenes (the shop has none): "
            "choose another strategy"
        )
    if settings.strategy != "coverage" and settings.size > len(tasks):
        raise UserError(
            f"size = {settings.size} tasks per client but there are only {len(tasks)}: lower size, "
            f"at most size = {len(tasks)}; with size = {max(len(tasks) // clients, 1)}, {clients} "
            "clients need share none"
        )
    if settings.strategy == "uniform":
        rows = uniform(len(tasks), clients, settings.size, seed)
    elif settings.strategy == "preference":
        rows = preference(_groups([task.category for task in tasks]), clients, settings, seed)
    elif settings.strategy == "coverage":
        rows = coverage(len(tasks), clients, settings, seed)
    elif settings.strategy == "hardness":
        rows = hardness(successes(tasks, labels), clients, settings, seed)
    else:
        rows = scenes(_groups([task.scene for task in tasks]), clients, settings, seed)
    return [ids[np.sort(row)].tolist() for row in rows]


def _groups(names: Sequence[str]) -> list[np.ndarray]:
    """The places of each name, names in order."""
    _, codes = np.unique(np.array(names, dtype=str), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes))[:-1])


def _sample(pool: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    return pool[rng.choice(len(pool), count, replace=False, shuffle=False)]


def uniform(tasks: int, clients: int, size: int, seed: int) -> list[np.ndarray]:
    everything = np.arange(tasks)
    return [
        _sample(everything, size, seeding.generator(seed, "partition uniform", client=client))
        for client in range(clients)
    ]


def preference(
    categories: Sequence[np.ndarray], clients: int, settings: Settings, seed: int
) -> list[np.ndarray]:
    room = np.array([len(pool) for pool in categories])
    centre = anchors(room, settings.anchor)
    rows = []
    for client in range(clients):
        rng = seeding.generator(seed, "partition preference", client=client)
        logits = centre + settings.omega * rng.standard_normal(len(room))
        counts = category_counts(logits, room, settings.size, rng)
        parts = [
            _sample(pool, count, rng)
            for pool, count in zip(categories, counts, strict=True)
            if count
        ]
        rows.append(np.concatenate(parts))
    return rows


def anchors(room: np.ndarray, kind: str) -> np.ndarray:
    """ℓ_c: where the noise is added to the categories' shares of the pool."""
    if kind == "log" or len(room) == 1:  # one category is all there is: its odds are infinite
        return np.log(room / room.sum())
    return np.log(room) - np.log(room.sum() - room)


def category_counts(
    logits: np.ndarray, room: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray:
    """How many tasks of each category [C]: at most `room`, `size` in all, by softmax(logits).

    What overflows is drawn again among the categories with room. That is the law of drawing one
    task after another and ignoring draws from a category that is used up.
    """
    counts = np.zeros(len(room), dtype=np.int64)
    while (missing := size - int(counts.sum())) > 0:
        free = np.flatnonzero(counts < room)
        odds = np.exp(logits[free] - logits[free].max())
        counts[free] += rng.multinomial(missing, odds / odds.sum())
        np.minimum(counts, room, out=counts)
    return counts


def coverage(tasks: int, clients: int, settings: Settings, seed: int) -> list[np.ndarray]:
    total = _total(settings, tasks, clients * settings.size)
    lowest = settings.fewest or 1
    highest = settings.most or min(tasks, math.ceil(2 * total / clients))
    if highest > tasks:
        raise UserError(f"most = {highest} but there are only {tasks} tasks")
    _require_room(settings, clients, total, lowest, highest)
    counts = spread.sizes(clients, total, lowest, highest, settings.xi, seed)
    return spread.place(counts, tasks, seeding.generator(seed, "partition coverage"))


def hardness(
    successful: np.ndarray, clients: int, settings: Settings, seed: int
) -> list[np.ndarray]:
    """`successful` [N]: whether each task is."""
    won, lost = np.flatnonzero(successful), np.flatnonzero(~successful)
    size = settings.size
    total = _total(settings, len(won), round(clients * size * len(won) / len(successful)))
    lowest = max(settings.fewest, size - len(lost))  # there is nothing else to fill it with
    highest = settings.most or min(size, len(won))
    if highest > len(won):
        raise UserError(f"most = {highest} but only {len(won)} of {len(successful)} tasks succeed")
    _require_room(settings, clients, total, lowest, highest)
    counts = spread.sizes(clients, total, lowest, highest, settings.xi, seed)
    rows = spread.place(counts, len(won), seeding.generator(seed, "partition hardness"))
    filled = []
    for client, row in enumerate(rows):
        rng = seeding.generator(seed, "partition fill", client=client)
        filled.append(np.concatenate([won[row], _sample(lost, size - len(row), rng)]))
    return filled


def _total(settings: Settings, items: int, even: int) -> int:
    """T = ⌊rN⌋ for the r that is set, else `even`."""
    if not settings.overlap:
        return even
    return math.floor(settings.overlap * items + 1e-6)  # 0.29 × 100 is 28.999…


def _require_room(settings: Settings, clients: int, total: int, lowest: int, highest: int) -> None:
    """K·L_min ≤ T ≤ K·L_max, or an error that says which of them fails."""
    key = "overlap" if settings.overlap else "size"
    kind = "successful tasks" if settings.strategy == "hardness" else "tasks"
    makes = f"{key} = {getattr(settings, key)} makes {total:,} {kind} for {clients} clients"
    if clients * lowest > total:
        mend = f"raise {key}, or lower fewest" if lowest == settings.fewest else f"raise {key}"
        raise UserError(
            f"{makes}, but with at least {lowest} each they hold {clients * lowest:,}: {mend}"
        )
    if clients * highest < total:
        mend = f"lower {key}, or raise most" if highest == settings.most else f"lower {key}"
        raise UserError(
            f"{makes}, but with at most {highest} each they hold {clients * highest:,}: {mend}"
        )


def scenes(
    rooms: Sequence[np.ndarray], clients: int, settings: Settings, seed: int
) -> list[np.ndarray]:
    """Scenes in random order, each to the client with the fewest tasks so far; round(div · L) of a
    client's tasks are of its own scenes, the others any."""
    own = own_scenes(rooms, clients, seed)
    wanted = round(settings.divergence * settings.size)
    fewest = min(range(clients), key=lambda client: len(own[client]))
    if wanted > len(own[fewest]) and settings.fallback == "refuse":
        most = len(own[fewest])
        raise UserError(
            f"size = {settings.size} but the scenes of client {fewest} hold only {most} "
            f"tasks: at most size = {most} with clients = {clients}, fewer clients, or "
            'fallback = "fewer" or "shared"'
        )
    everything = np.concatenate(rooms)
    rows = []
    for client, held in enumerate(own):
        rng = seeding.generator(seed, "partition scenes", client=client)
        row = _sample(held, min(wanted, len(held)), rng)
        more = settings.size - (wanted if settings.fallback == "fewer" else len(row))
        if more:
            row = np.concatenate([row, _sample(np.setdiff1d(everything, row), more, rng)])
        rows.append(row)
    return rows


def own_scenes(rooms: Sequence[np.ndarray], clients: int, seed: int) -> list[np.ndarray]:
    """The tasks of every client's own scenes."""
    if clients > len(rooms):
        raise UserError(
            f"clients = {clients} but there are only {len(rooms)} scenes, and every client needs "
            f"one of its own: at most clients = {len(rooms)}, or another strategy"
        )
    own: list[list[np.ndarray]] = [[] for _ in range(clients)]
    fewest = [(0, client) for client in range(clients)]
    for room in seeding.generator(seed, "partition scenes").permutation(len(rooms)):
        held, client = fewest[0]
        heapq.heapreplace(fewest, (held + len(rooms[room]), client))
        own[client].append(rooms[room])
    return [np.concatenate(parts) for parts in own]
