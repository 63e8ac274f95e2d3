"""Episodes of an agent: many at once, one sample per environment step.

A sample is what the learner needs of one step: the prompt, the answer, its log-probabilities, and
which episode it belongs to. The return of the episode comes at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from fedrl.envs.batch import Batch
from fedrl.envs.text import TextWorld
from fedrl.llm.generation.hf import Answers
from fedrl.llm.prompts.formats import Format


class Answering(Protocol):
    version: int

    def answer(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Answers: ...


@dataclass
class Sample:
    episode: int
    step: int
    prompt: list[int]
    answer: list[int]
    logprobs: list[float]
    situation: str  # what the world showed: equal situations are compared by GiGPO
    reward: float = 0.0  # what the world paid for this step
    valid: bool = True  # the answer was well formed
    command: str = ""  # what the world was told
    penalty: float = 0.0  # what its answer's form costs this step


@dataclass
class Rollout:
    """What was played. `groups[i]` numbers the task of episode i within this call."""

    samples: list[Sample]
    groups: list[int]
    returns: list[float]
    won: list[bool]
    invalid: list[int]  # answers that were not well formed
    lengths: list[int]
    version: int
    transcripts: list[list[tuple[str, str, str]]] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)  # ended by the step limit alone

    @property
    def tokens(self) -> int:
        return sum(len(sample.answer) for sample in self.samples)


@dataclass(frozen=True)
class Play:
    """How episodes are played: the parts that do not change from call to call."""

    world: TextWorld
    format: Format
    tokenizer: Any
    limit: int  # tokens of an answer
    max_steps: int
    prompt_limit: int = 2048


def play(
    how: Play,
    sampler: Answering,
    tasks: Sequence[str],
    temperature: float,
    generator: torch.Generator,
    group: int = 1,
    transcripts: bool = False,
) -> Rollout:
    """Play every task `group` times, all side by side."""
    batch = Batch(how.world, how.max_steps)
    ids = [task for task in tasks for _ in range(group)]
    turns = batch.reset(ids)
    notes = [
        how.format.begin(episode.goal, turn)
        for episode, turn in zip(batch.episodes, turns, strict=True)
    ]
    rollout = Rollout(
        [], [i // group for i in range(len(ids))], [0.0] * len(ids), [False] * len(ids),
        [0] * len(ids), [0] * len(ids), sampler.version, [[] for _ in ids] if transcripts else [],
        [False] * len(ids),
    )  # fmt: skip
    while running := batch.running:
        words = [how.format.prompt(notes[i]) for i in running]
        prompts = how.format.encode(how.tokenizer, [notes[i] for i in running], how.prompt_limit)
        answers = sampler.answer(prompts, how.limit, temperature, generator)
        said = how.tokenizer.batch_decode(answers.tokens, skip_special_tokens=True)
        commands = [""] * len(ids)
        for row, i in enumerate(running):
            commands[i], valid = how.format.command(notes[i], said[row])
            rollout.invalid[i] += not valid
            step, seen = batch.steps[i], turns[i].observation
            sample = Sample(i, step, prompts[row], answers.tokens[row], answers.logprobs[row], seen)
            sample.valid, sample.command = valid, commands[i]
            rollout.samples.append(sample)
        turns = batch.step(commands)
        for row, i in enumerate(running):
            how.format.observe(notes[i], commands[i], turns[i], said[row])
            rollout.returns[i] += turns[i].reward
            rollout.samples[row - len(running)].reward = turns[i].reward
            rollout.won[i] = bool(turns[i].info["won"])
            rollout.lengths[i] = batch.steps[i]
            rollout.truncated[i] = not turns[i].done
            if transcripts:
                rollout.transcripts[i].append((words[row], said[row], turns[i].observation))
    return rollout
