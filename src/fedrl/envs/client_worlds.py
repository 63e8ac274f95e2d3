"""The worlds of many clients as one: every client plays in its own, and all speak one interface.

A task of client k is called `client-k:id`; other ids are of the world that nobody owns, in which
the model is evaluated. A client's world is opened when a task of it is asked for: on a node that is
one, and the driver of nodes opens none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, overload

from fedrl.envs.side_by_side import StartsMany
from fedrl.envs.text import (
    DiffersByClient,
    Episode,
    Graded,
    PartitionedWorld,
    StepsMany,
    Task,
    TextWorld,
    Turn,
)

MARK = "client-"
OWNED = re.compile(rf"{MARK}(\d+):")
KEPT = 256
"""Clients' worlds that stay open."""


class _Episode:
    """One of a client's world."""

    __slots__ = ("inner", "world")

    def __init__(self, world: TextWorld, inner: Episode) -> None:
        self.world, self.inner = world, inner

    @property
    def goal(self) -> str:
        return self.inner.goal

    def step(self, command: str) -> Turn:
        return self.inner.step(command)


class ClientWorlds:
    """`plain` opens the world that nobody owns (where there is none, any), `open` a client's.

    `alike` is for worlds with the same tasks under the same ids, which differ in how they go on.
    """

    def __init__(
        self,
        plain: Callable[[], TextWorld],
        open: Callable[[int], TextWorld],
        clients: int,
        alike: bool = False,
    ) -> None:
        self._plain, self.clients, self.alike = plain, clients, alike
        self.of = lru_cache(maxsize=KEPT)(open)

    @cached_property
    def plain(self) -> TextWorld:
        return self._plain()

    @property
    def name(self) -> str:
        return self.plain.name

    @property
    def splits(self) -> tuple[str, ...]:
        return self.plain.splits

    @property
    def max_steps(self) -> int:
        return self.plain.max_steps

    @property
    def graded(self) -> bool:
        return isinstance(self.plain, Graded) and self.plain.graded

    def tasks(self, split: str) -> Sequence[Task]:
        """Of the world that nobody owns; what is trained on is the clients' own.

        Nobody trains there, so all of its tasks are evaluated on where it has none of the split.
        """
        if self.alike:
            return self.plain.tasks(split)
        if split != "train":
            splits = dict.fromkeys((split, "train", *self.splits))
            return next((found for each in splits if (found := self.plain.tasks(each))), ())
        return [task for client in range(self.clients) for task in self.tasks_of(client, split)]

    def tasks_of(self, client: int, split: str) -> OwnTasks:
        """Of this client's world, under the names that they have here."""
        return OwnTasks(client, self.of(client).tasks(split))

    def start(self, task: str, seed: int = 0) -> tuple[Episode, Turn]:
        return self.start_many([task], seed)[0]

    def start_many(self, tasks: Sequence[str], seed: int = 0) -> list[tuple[Episode, Turn]]:
        begun: list[tuple[Episode, Turn] | None] = [None] * len(tasks)
        for world, places, ids in self._by_world(tasks):
            pairs = (
                world.start_many(ids, seed)
                if isinstance(world, StartsMany)
                else [world.start(id, seed) for id in ids]
            )
            for place, (episode, turn) in zip(places, pairs, strict=True):
                begun[place] = _Episode(world, episode), turn
        return [pair for pair in begun if pair is not None]

    def _by_world(self, tasks: Sequence[str]) -> Iterator[tuple[TextWorld, list[int], list[str]]]:
        places: dict[int, list[int]] = {}
        owners = [owner_of(task) for task in tasks]
        for place, (owner, _) in enumerate(owners):
            places.setdefault(owner, []).append(place)
        for owner, own in places.items():
            world = self.plain if owner < 0 else self.of(owner)
            yield world, own, [owners[place][1] for place in own]

    def step_many(
        self,
        episodes: Sequence[Episode],
        commands: Sequence[str],
        tokens: Sequence[Sequence[int]],
    ) -> list[Turn]:
        turns: list[Turn | None] = [None] * len(episodes)
        places: dict[int, list[int]] = {}
        for place, episode in enumerate(episodes):
            assert isinstance(episode, _Episode)
            places.setdefault(id(episode.world), []).append(place)
        for own in places.values():
            inner = [e.inner for i in own if isinstance(e := episodes[i], _Episode)]
            first = episodes[own[0]]
            assert isinstance(first, _Episode)
            said = [commands[i] for i in own]
            answers = (
                first.world.step_many(inner, said, [tokens[i] for i in own])
                if isinstance(first.world, StepsMany)
                else [e.step(command) for e, command in zip(inner, said, strict=True)]
            )
            for place, turn in zip(own, answers, strict=True):
                turns[place] = turn
        return [turn for turn in turns if turn is not None]


class OwnTasks(Sequence[Task]):
    """A client's tasks with the client before their ids; made when they are asked for."""

    def __init__(self, client: int, tasks: Sequence[Task]) -> None:
        self.client, self._tasks = client, tasks

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> OwnTasks: ...

    def __getitem__(self, index: int | slice) -> Task | OwnTasks:
        if isinstance(index, slice):
            return OwnTasks(self.client, self._tasks[index])
        return owned(self.client, self._tasks[index])

    def __iter__(self) -> Iterator[Task]:
        return (owned(self.client, task) for task in self._tasks)

    def ids(self) -> list[str]:
        return [f"{MARK}{self.client}:{task.id}" for task in self._tasks]


class OwnShares(Sequence[Sequence[str]]):
    """What every client trains on: all tasks that its world has for that."""

    def __init__(self, worlds: ClientWorlds) -> None:
        self.worlds = worlds

    def __len__(self) -> int:
        return self.worlds.clients

    @overload
    def __getitem__(self, index: int) -> Sequence[str]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[str]]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.worlds.tasks_of(index, "train").ids()


def owned(client: int, task: Task) -> Task:
    return task._replace(id=owned_id(client, task.id))


def owned_id(client: int, task: str) -> str:
    return f"{MARK}{client}:{task}"


def owner_of(task: str) -> tuple[int, str]:
    """Whose task it is, −1 for nobody's, and what it is called there."""
    found = OWNED.match(task)
    return (int(found[1]), task[found.end() :]) if found else (-1, task)


def each_in_its_own(world: DiffersByClient, shares: Sequence[Sequence[str]]) -> PartitionedWorld:
    """What was dealt out of a world, every client's share to be played in the client's own."""
    worlds = ClientWorlds(
        lambda: world,
        lambda client: world.of_client(client, shares[client]),
        len(shares),
        alike=True,
    )
    renamed = (
        tuple(owned_id(client, task) for task in share) for client, share in enumerate(shares)
    )
    return PartitionedWorld(worlds, tuple(renamed))


def described(world: TextWorld) -> TextWorld:
    """One world of its kind, for what does not depend on whose it is: its format, its rewards."""
    return world.plain if isinstance(world, ClientWorlds) else world
