"""Episodes of an agent: many at once, one sample per environment step.

A sample is what the learner needs of one step: the prompt, the answer, its log-probabilities, and
which episode it belongs to. The return of the episode comes at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

import torch

from fedrl.core.types import Shareable, UserError
from fedrl.envs.batch import Batch
from fedrl.envs.text import TextWorld
from fedrl.llm.generation.sampler import Sampler
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import Notes, PromptFormat


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
    scored: list[bool] = field(default_factory=list)  # somebody could say what it was worth

    @property
    def tokens(self) -> int:
        return sum(len(sample.answer) for sample in self.samples)

    def scored_only(self) -> Rollout:
        """Without the episodes that nobody could score: the others are compared with each other."""
        if all(self.scored):
            return self
        kept = [i for i, scored in enumerate(self.scored) if scored]
        if not kept:
            raise UserError(Shareable("no answer got a reward: every function returned None"))
        now = {episode: number for number, episode in enumerate(kept)}
        samples = [
            replace(sample, episode=now[sample.episode])
            for sample in self.samples
            if sample.episode in now
        ]
        groups = [self.groups[i] for i in kept]
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        return Rollout(
            samples,
            [numbers[group] for group in groups],
            [self.returns[i] for i in kept],
            [self.won[i] for i in kept],
            [self.invalid[i] for i in kept],
            [self.lengths[i] for i in kept],
            self.version,
            [self.transcripts[i] for i in kept] if self.transcripts else [],
            [self.truncated[i] for i in kept],
            [True] * len(kept),
        )


@dataclass(frozen=True)
class AgentLoop(Generic[Notes]):
    """How an agent plays: what does not change from one rollout to the next."""

    world: TextWorld
    format: PromptFormat[Notes]
    tokenizer: Tokenizer
    answer_tokens: int
    prompt_tokens: int = 2048
    max_steps: int | None = None  # the world's own


def collect_rollout(
    loop: AgentLoop[Notes],
    sampler: Sampler,
    tasks: Sequence[str],
    temperature: float,
    generator: torch.Generator,
    group: int = 1,
    transcripts: bool = False,
) -> Rollout:
    """Play every task `group` times, all side by side."""
    format, batch = loop.format, Batch(loop.world, loop.max_steps)
    ids = [task for task in tasks for _ in range(group)]
    turns = batch.reset(ids)
    notes = [
        format.start(episode.goal, turn)
        for episode, turn in zip(batch.episodes, turns, strict=True)
    ]
    rollout = Rollout(
        [], [i // group for i in range(len(ids))], [0.0] * len(ids), [False] * len(ids),
        [0] * len(ids), [0] * len(ids), sampler.version, [[] for _ in ids] if transcripts else [],
        [False] * len(ids), [True] * len(ids),
    )  # fmt: skip
    while running := batch.running:
        words = [format.prompt(notes[i]) for i in running]
        prompts = format.encode(loop.tokenizer, [notes[i] for i in running], loop.prompt_tokens)
        completions = sampler.generate(prompts, loop.answer_tokens, temperature, generator)
        said = loop.tokenizer.batch_decode(completions.tokens, skip_special_tokens=True)
        commands, written = [""] * len(ids), [list[int]()] * len(ids)
        for row, i in enumerate(running):
            commands[i], valid = format.parse(notes[i], said[row])
            rollout.invalid[i] += not valid
            sample = Sample(
                i, batch.steps[i], prompts[row], completions.tokens[row],
                completions.logprobs[row], turns[i].observation, valid=valid, command=commands[i],
            )  # fmt: skip
            rollout.samples.append(sample)
            written[i] = completions.tokens[row]
        turns = batch.step(commands, written)
        for row, i in enumerate(running):
            format.observe(notes[i], commands[i], turns[i], said[row])
            rollout.returns[i] += turns[i].reward
            rollout.samples[row - len(running)].reward = turns[i].reward
            rollout.won[i] = bool(turns[i].info["won"])
            rollout.lengths[i] = batch.steps[i]
            rollout.truncated[i] = not turns[i].done
            rollout.scored[i] = bool(turns[i].info.get("scored", True))
            if transcripts:
                rollout.transcripts[i].append((words[row], said[row], turns[i].observation))
    return rollout
