"""Answers and episodes of a stated length, for models that never stop by themselves.

Random weights end neither an answer nor a game: every answer would run to the limit, every episode
to the last step. Here both lengths are drawn. An answer's comes from the seed of its own random
numbers, an episode's from its number, so that neither depends on what is done when. What the
model says is nonsense; in its place a command that the world offers is played, so that prompts grow
as they do in a game.

The hooks replace names of `fedagent.local_trainer` while a benchmark runs: no setting of a user's
has anything to do with them.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from fedrl.algorithms.fedagent import local_trainer
from fedrl.core import seeding
from fedrl.envs.text import Episode, TextWorld, Turn
from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.sampler import Answer, Request
from fedrl.llm.policy import Policy
from fedrl.llm.prompts.chat import BLANK
from fedrl.llm.rollout import AgentLoop

ENDS = re.compile(r"buy now", re.IGNORECASE)
"""Commands that end a game at once: an episode's length is drawn, so nobody gives them."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of an answer: geometric with this mean, cut at `most`. Steps of an episode: uniform,
    both ends included."""

    mean: int = 100
    most: int = 512
    steps: tuple[int, int] = (5, 50)

    def tokens(self, seed: int) -> int:
        """Of the answer whose random numbers have this seed."""
        if self.mean <= 1:
            return 1
        below_one = 1 - seeding.generator(seed, "answer length").random()
        drawn = 1 + int(math.log(below_one) / math.log1p(-1 / self.mean))
        return min(drawn, self.most)

    def mean_tokens(self) -> float:
        """What `tokens` has on average: the cut takes some off."""
        ends = 1 / max(self.mean, 1)
        return (1 - (1 - ends) ** self.most) / ends

    def mean_steps(self) -> float:
        return sum(self.steps) / 2

    def episode(self, number: int) -> int:
        low, high = self.steps
        return int(seeding.generator(number, "episode length").integers(low, high + 1))

    def __str__(self) -> str:
        low, high = self.steps
        return (
            f"answers geometric with mean {self.mean}, {self.most} tokens at most "
            f"({self.mean_tokens():.1f} on average); episodes uniform from {low} to {high} steps "
            f"({self.mean_steps():.1f} on average)"
        )


class ForcedSampler(CudaSampler):
    """Our engine, whose answers end where their lengths say; nothing else ends them."""

    def __init__(self, policy: Policy, lengths: Lengths) -> None:
        super().__init__(policy.model, (), policy.pad, seeded=True)
        self.lengths = lengths

    def stream(
        self,
        requests: Sequence[Request],
        limit: int,
        temperature: float,
        answered: Callable[[list[Answer]], list[Request]],
        rows: int | None = None,
        most: int | None = None,
    ) -> None:
        def limited(asked: Sequence[Request]) -> list[Request]:
            return [one._replace(limit=self.lengths.tokens(one.seed)) for one in asked]

        super().stream(
            limited(requests), limit, temperature, lambda said: limited(answered(said)), rows, most
        )


class _DrawnEpisode:
    """Ends after so many steps, if the game has not ended before."""

    def __init__(self, inner: Episode, steps: int) -> None:
        self.inner, self.left = inner, steps

    @property
    def goal(self) -> str:
        return self.inner.goal

    def step(self, command: str) -> Turn:
        turn, self.left = self.inner.step(command), self.left - 1
        return turn._replace(done=turn.done or self.left <= 0)


class DrawnEpisodes:
    """A world whose episodes have drawn lengths, by the order in which they are started."""

    def __init__(self, world: TextWorld, lengths: Lengths) -> None:
        self.world, self.lengths, self.started = world, lengths, 0
        self.name, self.splits, self.max_steps = world.name, world.splits, world.max_steps

    def tasks(self, split: str) -> Any:
        return self.world.tasks(split)

    def start(self, task: str, seed: int = 0) -> tuple[Episode, Turn]:
        episode, turn = self.world.start(task, seed)
        self.started += 1
        return _DrawnEpisode(episode, self.lengths.episode(self.started)), turn


@dataclass
class _Played:
    """An episode's notes, and what draws its commands."""

    notes: Any
    goal: str
    admissible: Sequence[str]
    rng: random.Random


class DrawnCommands:
    """A prompt format that reads a command which the world offers out of any answer."""

    def __init__(self, format: Any) -> None:
        self.format, self.started = format, 0

    def start(self, goal: str, turn: Turn) -> _Played:
        self.started += 1
        rng = random.Random(seeding.derive(self.started, "commands"))
        return _Played(self.format.start(goal, turn), goal, turn.admissible, rng)

    def observe(self, notes: _Played, command: str, turn: Turn, said: str = "") -> None:
        self.format.observe(notes.notes, command, turn, said)
        notes.admissible = turn.admissible

    def prompt(self, notes: _Played) -> str:
        return str(self.format.prompt(notes.notes))

    def encode(self, tokenizer: Any, notes: Sequence[_Played], limit: int) -> list[list[int]]:
        return list(self.format.encode(tokenizer, [one.notes for one in notes], limit))

    def parse(self, notes: _Played, completion: str) -> tuple[str, bool]:
        return drawn_command(notes.admissible, notes.goal, notes.rng), True

    def render(self, notes: _Played, command: str) -> str:
        return str(self.format.render(notes.notes, command))


def drawn_command(admissible: Sequence[str], goal: str, rng: random.Random) -> str:
    """One of those that do something; a search gets words of the goal."""
    offered = [command for command in admissible if not ENDS.search(command)]
    if not offered:
        return "look"
    words = re.findall(r"[a-z]+", goal.lower()) or ["thing"]
    asked = " ".join(rng.choices(words, k=3))
    return BLANK.sub(asked, rng.choice(offered))


@contextmanager
def forced(lengths: Lengths) -> Iterator[None]:
    """Within it every `LocalTrainer` plays answers and episodes of these lengths."""

    def sampler(rollouts: str, policy: Policy, length: int) -> ForcedSampler:
        return ForcedSampler(policy, lengths)

    def loop(world: TextWorld, format: Any, *rest: Any, **more: Any) -> AgentLoop[Any]:
        return AgentLoop(DrawnEpisodes(world, lengths), DrawnCommands(format), *rest, **more)

    with ExitStack() as stack:
        stack.enter_context(patch.object(local_trainer, "select_sampler", sampler))
        stack.enter_context(patch.object(local_trainer, "AgentLoop", loop))
        yield
