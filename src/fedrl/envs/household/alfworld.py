"""The real ALFWorld engine behind the same interface: an example of adapting another's package.

`Alfworld(Household(…))` plays a household's tasks, generated or genuine, in the packages `alfworld`
and `textworld`, with the same strings and far more slowly: to check our engine, and to show that
what was trained here plays there.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol, overload

from fedrl.core.types import UserError
from fedrl.envs.household.export import game
from fedrl.envs.household.layout import GENERATIONS
from fedrl.envs.household.problem import Problem
from fedrl.envs.household.world import Household
from fedrl.envs.text import Task, Turn


class State(Protocol):
    """What the engine answers: textworld's GameState, as far as it is used."""

    @property
    def feedback(self) -> str: ...

    @overload
    def __getitem__(self, key: Literal["won"]) -> bool: ...

    @overload
    def __getitem__(self, key: Literal["admissible_commands"]) -> list[str]: ...


class Engine(Protocol):
    """textworld's PddlEnv under ALFWorld's naming of things."""

    def load(self, game: Mapping[str, str] | str) -> None: ...

    def reset(self) -> State: ...

    def step(self, command: str) -> tuple[State, float, bool]: ...


IDLE: list[Engine] = []
"""Engines without a game, used again: each loads a copy of the planner's library, and closing that
(fast_downward.close_lib) when an episode was collected crashed the process."""


class AlfworldEpisode:
    """One game in the real engine, which is free for another when this one is forgotten."""

    def __init__(self, content: Mapping[str, str] | str) -> None:
        self.env = IDLE.pop() if IDLE else _engine()
        weakref.finalize(self, IDLE.append, self.env)
        with _own_arguments():
            self.env.load(content)
            state = self.env.reset()
        self.first = _turn(state, 0.0, bool(state["won"]))
        self.done = self.first.done

    @property
    def goal(self) -> str:
        return self.first.observation.rpartition("Your task is to: ")[2].removesuffix(".")

    def step(self, command: str) -> Turn:
        if self.done:
            return Turn("The game is over.", 0.0, True, (), {"won": True})
        state, score, self.done = self.env.step(command)
        return _turn(state, float(score), self.done)


class Alfworld:
    """A household's tasks in the real engine; the expert is the household's."""

    name = "alfworld"

    def __init__(self, household: Household) -> None:
        self.household = household
        self.splits = household.splits
        self.max_steps = household.max_steps

    def tasks(self, split: str) -> Sequence[Task]:
        return self.household.tasks(split)

    def start(self, task: str, seed: int = 0) -> tuple[AlfworldEpisode, Turn]:
        return play(self.household.problem(task), self.household.settings.generation)

    def demonstrate(self, task: str, seed: int = 0) -> list[str]:
        return self.household.demonstrate(task, seed)


def play(source: Problem | Path, generation: str = GENERATIONS[0]) -> tuple[AlfworldEpisode, Turn]:
    """Start a problem, or a game file (`game.tw-pddl`), whose wording is its own."""
    if isinstance(source, Path) and not source.is_file():
        raise UserError(f"no game file {source}; ALFWorld's are called game.tw-pddl")
    content = str(source) if isinstance(source, Path) else game(source, generation)
    episode = AlfworldEpisode(content)
    return episode, episode.first


def _turn(state: State, reward: float, done: bool) -> Turn:
    return Turn(state.feedback, reward, done, state["admissible_commands"], {"won": state["won"]})


def _engine() -> Engine:
    try:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs.pddl import PddlEnv
    except ModuleNotFoundError as error:
        raise UserError(
            f"the real ALFWorld engine needs the package {error.name}: pip install alfworld"
        ) from error
    env = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
    engine: Engine = AlfredInfos(AlfredDemangler(env, shuffle=False))
    return engine


@contextmanager
def _own_arguments() -> Iterator[None]:
    """The planner's translator overwrites the program's arguments; give them back."""
    arguments = sys.argv
    try:
        yield
    finally:
        sys.argv = arguments
