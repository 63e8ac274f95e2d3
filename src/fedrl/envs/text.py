"""The interface of a text world: tasks with a goal in words, commands in, sentences out.

A third-party environment plugs in with one class that has `tasks` and `start` (docs/worlds.md
shows one in thirty lines); everything above (Gymnasium, rollouts, partitions) speaks only this.
What not every world has are protocols of their own: an expert (`Demonstrates`), rewards that are
numbers rather than won or lost (`Graded`), episodes that are stepped together (`StepsMany`), a
world for each client (`DiffersByClient`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Item = TypeVar("Item")


class Task(NamedTuple):
    """What a partition may know of a task: never its content."""

    id: str
    category: str  # the task type of the household, the department of the shop
    scene: str = ""  # the room it plays in, where a world has rooms


class Turn(NamedTuple):
    """What the world answers: after `start`, and after every command."""

    observation: str
    reward: float
    done: bool  # the game has ended by itself; a step limit is the caller's
    admissible: Sequence[str]  # commands that would do something now, in the world's order
    info: Mapping[str, Any]
    """Always "won"; "failed" where the last command did nothing and the observation does not say
    so; at the end also the parts of the reward, and "scored", which is false where nobody could say
    what the episode was worth."""


class Episode(Protocol):
    """One running game; cheap, by the hundred."""

    @property
    def goal(self) -> str:
        """The task in words, as the agent is told it."""
        ...

    def step(self, command: str) -> Turn: ...


class TextWorld(Protocol):
    """A family of tasks. `splits` never share a task."""

    @property
    def name(self) -> str: ...

    @property
    def splits(self) -> tuple[str, ...]: ...

    @property
    def max_steps(self) -> int:
        """The step limit that the papers use: 50 in the household, 15 in the shop."""
        ...

    def tasks(self, split: str) -> Sequence[Task]: ...

    def start(self, task: str, seed: int = 0) -> tuple[Episode, Turn]:
        """A fresh episode of the task with this id, and what the agent sees first."""
        ...


@runtime_checkable
class Demonstrates(Protocol):
    """A world with an expert: warm starts imitate it."""

    def demonstrate(self, task: str, seed: int = 0) -> list[str]:
        """The expert's commands; played in order they win the task."""
        ...


@runtime_checkable
class Graded(Protocol):
    """A world that says whether its rewards are to be learned from as the numbers that they are;
    without it, an episode is won or lost."""

    graded: bool


@runtime_checkable
class NamesPlaces(Protocol):
    """A world whose tasks lie in a table of its owner's: whoever has to mend one must find it."""

    def place(self, task: str) -> str:
        """Its row, without what it holds and without names that are its owner's."""
        ...


@runtime_checkable
class Fingerprinted(Protocol):
    """A world whose tasks have contents to compare, whatever they are called: no task may be in two
    places under two names."""

    def fingerprints(self, tasks: Sequence[str]) -> set[str]:
        """A digest of the content of each."""
        ...


@runtime_checkable
class Alike(Protocol):
    """A world that says what must be the same wherever it is played, as digests by name: tools,
    say."""

    def agreement(self) -> Mapping[str, str]: ...


@runtime_checkable
class StepsMany(Protocol):
    """A world that steps many episodes in one call: what it asks outside is asked for all."""

    def step_many(
        self,
        episodes: Sequence[Episode],
        commands: Sequence[str],
        tokens: Sequence[Sequence[int]],
    ) -> list[Turn]:
        """One turn per episode; `tokens` are those that the model wrote, empty if unknown."""
        ...


@runtime_checkable
class DiffersByClient(TextWorld, Protocol):
    """A world that goes on otherwise for each client: the same tasks under the same ids."""

    def of_client(self, client: int, tasks: Collection[str]) -> TextWorld:
        """The client's own, in which it trains on these tasks; others may be missing there."""
        ...


@runtime_checkable
class Configured(Protocol):
    """A world that keeps the settings that it was opened with."""

    @property
    def settings(self) -> DataclassInstance: ...


@dataclass(frozen=True)
class PartitionedWorld:
    """A world and what each client trains on: `shares[k]` are client k's task ids, the whole pool
    where one centralized client stands for all.

    Where clients bring data of their own (`partition.strategy = "own"`) the shares are read when
    they are asked for, each where it lies, and `heaviest` is the most that a client can weigh.
    `held_out` says whether the model is evaluated on the world's tasks or on each client's own.
    """

    world: TextWorld
    shares: Sequence[Sequence[str]]
    heaviest: float | None = None
    held_out: Literal["public", "clients"] = "public"

    @property
    def own(self) -> bool:
        return self.heaviest is not None

    def pools(self, owners: Sequence[Sequence[int]]) -> Sequence[list[str]]:
        """What clients train on who hold the data of these `owners` each."""
        if self.own:
            return _Pools(self.shares, owners)
        return [sorted({task for owner in pool for task in self.shares[owner]}) for pool in owners]


class _Pools(Sequence[list[str]]):
    """The same, each read when it is asked for."""

    def __init__(self, shares: Sequence[Sequence[str]], owners: Sequence[Sequence[int]]) -> None:
        self._owners = owners
        self._pool = lru_cache(maxsize=256)(
            lambda client: [task for owner in owners[client] for task in shares[owner]]
        )

    def __len__(self) -> int:
        return len(self._owners)

    @overload
    def __getitem__(self, index: int) -> list[str]: ...

    @overload
    def __getitem__(self, index: slice) -> list[list[str]]: ...

    def __getitem__(self, index: int | slice) -> list[str] | list[list[str]]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._pool(index)


def spaced(items: Sequence[Item], count: int) -> list[Item]:
    """So many of the items, evenly spaced: a world may list its tasks by type."""
    return [items[i * len(items) // count] for i in range(count)]
