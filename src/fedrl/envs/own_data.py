"""What lies in each client's folder (`partition.strategy = "own"`), in lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedrl.envs.client_worlds import ClientWorlds
from fedrl.envs.text import PartitionedWorld, Task, TextWorld
from fedrl.partition import OwnFolders
from fedrl.partition.own_folders import PUBLIC

SHOWN = 20
"""Clients, and of each its largest categories, that are listed; more are counted."""
KINDS = 5


def own_data_lines(dealt: PartitionedWorld, folders: OwnFolders) -> list[str]:
    """A line per client, one of what is nobody's, and what becomes of what clients hold out.

    Every folder is opened, so that what is wrong in one is said with its name.
    """
    worlds = dealt.world
    assert isinstance(worlds, ClientWorlds)
    trained, held, lines = list[int](), list[int](), list[str]()
    for client in range(worlds.clients):
        world = worlds.of(client)
        counts = _counts(world)
        trained.append(counts.pop("train", 0))
        held.append(sum(counts.values()))
        if client < SHOWN:
            lines.append(f"{folders.named(client)}: {_client_line(world, trained[-1], counts)}")
    if rest := trained[SHOWN:]:
        lines.append(
            f"{len(rest):,} more clients: {min(rest):,} to {max(rest):,} tasks each are trained "
            f"on, {sum(held[SHOWN:]):,} held out in all"
        )
    if folders.public.is_dir():
        parts = ", ".join(f"{count:,} {split}" for split, count in _counts(worlds.plain).items())
        lines.append(f"{PUBLIC}: {parts}; nobody trains on them")
    if sum(held) and dealt.held_out == PUBLIC:
        lines.append(
            f"the run is evaluated on {PUBLIC} alone: the {sum(held):,} tasks that clients hold "
            "out are not trained on, and are played by `fedrl eval` and `fedrl joining`"
        )
    return lines


def _counts(world: TextWorld) -> dict[str, int]:
    """Tasks by split, of those that the world has."""
    return {split: count for split in world.splits if (count := len(world.tasks(split)))}


def _client_line(world: TextWorld, trained: int, held: dict[str, int]) -> str:
    total = trained + sum(held.values())
    apart = ", ".join(f"{count:,} {split}" for split, count in held.items()) or "none"
    kinds = _categories([task for split in ("train", *held) for task in world.tasks(split)])
    return f"{total:,} tasks, {trained:,} trained on, held out {apart}{kinds}"


def _categories(tasks: Sequence[Task]) -> str:
    """The largest; nothing where all tasks are of one."""
    counts = Counter(task.category for task in tasks)
    if len(counts) == 1:
        return ""
    named = ", ".join(f"{kind} {count:,}" for kind, count in counts.most_common(KINDS))
    return f"; {named}" + (f" and {len(counts) - KINDS:,} more" if len(counts) > KINDS else "")
