"""The interface of a text world: tasks with a goal in words, commands in, sentences out.

A third-party environment plugs in with one class that has `tasks` and `start` (docs/worlds.md
shows one in thirty lines); everything above (Gymnasium, rollouts, partitions) speaks only this.
What not every world has are protocols of their own: an expert (`Demonstrates`), rewards that are
numbers rather than won or lost (`Graded`), episodes that are stepped together (`StepsMany`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

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
    """Always "won"; at the end also the parts of the reward, and "scored", which is false where
    nobody could say what the episode was worth."""


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
class Configured(Protocol):
    """A world that keeps the settings that it was opened with."""

    @property
    def settings(self) -> DataclassInstance: ...


@dataclass(frozen=True)
class PartitionedWorld:
    """A world whose training tasks have been dealt out: `shares[k]` are client k's task ids, the
    whole pool where one centralized client stands for all."""

    world: TextWorld
    shares: tuple[tuple[str, ...], ...]


def spaced(items: Sequence[Item], count: int) -> list[Item]:
    """So many of the items, evenly spaced: a world may list its tasks by type."""
    return [items[i * len(items) // count] for i in range(count)]
