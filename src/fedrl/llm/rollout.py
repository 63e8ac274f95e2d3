"""Episodes of an agent: many at once, one sample per environment step.

A sample is what the learner needs of one step: the prompt, the answer, its log-probabilities, and
which episode it belongs to. The return of the episode comes at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

import torch

from fedrl.core import seeding
from fedrl.core.types import Shareable, UserError
from fedrl.envs.batch import Batch
from fedrl.envs.text import NamesPlaces, TextWorld
from fedrl.llm.generation.sampler import (
    Answer,
    Completions,
    Generators,
    Request,
    Sampler,
    StreamingSampler,
)
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import Notes, PromptFormat, require_tokens


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
    """What was played. `groups[i]` numbers the task of episode i within this call.

    `transcripts` are (prompt, answer, what the world then showed) of the episodes that were asked
    for; empty ones of the others.
    """

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
    goals: list[str] = field(default_factory=list)  # the tasks in words

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
        return self.only(kept)

    def only(self, kept: Sequence[int]) -> Rollout:
        """These episodes alone; they and their groups are numbered anew."""
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
            [self.scored[i] for i in kept],
            [self.goals[i] for i in kept] if self.goals else [],
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
    rows: int | None = None  # most episodes that a stream answers at a time; None: all


def collect_rollout(
    loop: AgentLoop[Notes],
    sampler: Sampler,
    tasks: Sequence[str],
    temperature: float,
    generator: torch.Generator,
    group: int = 1,
    transcripts: bool | Collection[int] = False,
    seeds: Sequence[int] | None = None,
) -> Rollout:
    """Play every task `group` times, all side by side.

    `transcripts` are kept of all episodes, or of these. With `seeds` of the tasks an episode's
    random numbers are its task's own, whatever is played beside it, and `generator` is not asked.
    """
    play = _Play(loop, sampler.version, tasks, group, transcripts)

    def own_seed(i: int) -> int:
        assert seeds is not None
        return seeding.derive(seeds[i // group], "answer", play.batch.steps[i], i % group)

    if isinstance(sampler, StreamingSampler) and sampler.streams:
        own = None if seeds is None else own_seed
        _play_in_stream(play, sampler, temperature, generator, own)
    else:
        draws: Generators = generator
        while running := play.batch.running:
            prompts = play.ask(running)
            if seeds is not None:  # anew for every answer: a row draws until the last one has ended
                made = [torch.Generator(generator.device) for _ in running]
                draws = [g.manual_seed(own_seed(i)) for g, i in zip(made, running, strict=True)]
            completions = sampler.generate(prompts, loop.answer_tokens, temperature, draws)
            play.answer(running, prompts, completions)
    return play.rollout


def _play_in_stream(
    play: _Play[Notes],
    sampler: StreamingSampler,
    temperature: float,
    generator: torch.Generator,
    own_seed: Callable[[int], int] | None = None,
) -> None:
    """No episode waits for another: its next prompt begins when its answer has ended and there is
    room. What an episode says depends on its number and step, not on who is done when."""
    first = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
    asked: dict[int, list[int]] = {}

    def seed(i: int) -> int:
        if own_seed is not None:
            return own_seed(i)
        return seeding.derive(first, "answer", play.batch.steps[i], i)

    def requests(slots: Sequence[int]) -> list[Request]:
        asked.update(zip(slots, play.ask(slots), strict=True))
        return [Request(i, asked[i], seed(i)) for i in slots]

    def answered(answers: list[Answer]) -> list[Request]:
        answers = sorted(answers)
        slots = [answer.key for answer in answers]
        said = Completions([a.tokens for a in answers], [a.logprobs for a in answers])
        play.answer(slots, [asked[i] for i in slots], said)
        running = set(play.batch.running)
        return requests([i for i in slots if i in running])

    if play.batch.running:
        sampler.stream(
            requests(play.batch.running), play.loop.answer_tokens, temperature, answered,
            play.loop.rows, play.loop.prompt_tokens,
        )  # fmt: skip
    play.rollout.samples.sort(key=lambda sample: (sample.step, sample.episode))


def task_place(world: TextWorld, task: str) -> str:
    """Where a task lies, in words that may leave a client; its name may tell what it is about."""
    return world.place(task) if isinstance(world, NamesPlaces) else f"a task of {world.name}"


class _Play(Generic[Notes]):
    """The episodes of a rollout while they are played."""

    def __init__(
        self,
        loop: AgentLoop[Notes],
        version: int,
        tasks: Sequence[str],
        group: int,
        transcripts: bool | Collection[int],
    ) -> None:
        self.loop, self.batch = loop, Batch(loop.world, loop.max_steps)
        ids = self.tasks = [task for task in tasks for _ in range(group)]
        turns = self.batch.reset(ids)
        every = range(len(ids)) if transcripts else ()
        self.recorded = set(every if isinstance(transcripts, bool) else transcripts)
        self.notes = [
            loop.format.start(episode.goal, turn)
            for episode, turn in zip(self.batch.episodes, turns, strict=True)
        ]
        self.rollout = Rollout(
            [], [i // group for i in range(len(ids))], [0.0] * len(ids), [False] * len(ids),
            [0] * len(ids), [0] * len(ids), version, [[] for _ in ids] if self.recorded else [],
            [False] * len(ids), [True] * len(ids),
            [episode.goal for episode in self.batch.episodes if self.recorded],
        )  # fmt: skip

    def ask(self, slots: Sequence[int]) -> list[list[int]]:
        """What these episodes are told."""
        loop = self.loop
        notes = [self.notes[i] for i in slots]
        rows = loop.format.encode(loop.tokenizer, notes, loop.prompt_tokens)
        if not all(rows):
            require_tokens(rows, [task_place(loop.world, self.tasks[i]) for i in slots])
        return rows

    def answer(
        self, slots: Sequence[int], prompts: Sequence[list[int]], completions: Completions
    ) -> None:
        """Step these episodes with what was said, and note what came of it."""
        format, batch, rollout, notes = self.loop.format, self.batch, self.rollout, self.notes
        words = {i: format.prompt(notes[i]) for i in slots if i in self.recorded}
        said = self.loop.tokenizer.batch_decode(completions.tokens, skip_special_tokens=True)
        count = len(batch.episodes)
        commands, written = [""] * count, [list[int]()] * count
        for row, i in enumerate(slots):
            commands[i], valid = format.parse(notes[i], said[row])
            rollout.invalid[i] += not valid
            sample = Sample(
                i, batch.steps[i], prompts[row], completions.tokens[row],
                completions.logprobs[row], batch.turns[i].observation, valid=valid,
                command=commands[i],
            )  # fmt: skip
            rollout.samples.append(sample)
            written[i] = completions.tokens[row]
        batch.advance(slots, commands, written)
        for row, i in enumerate(slots):
            turn = batch.turns[i]
            format.observe(notes[i], commands[i], turn, said[row])
            rollout.returns[i] += turn.reward
            rollout.samples[row - len(slots)].reward = turn.reward
            rollout.won[i] = bool(turn.info["won"])
            rollout.lengths[i] = batch.steps[i]
            rollout.truncated[i] = not turn.done
            rollout.scored[i] = bool(turn.info.get("scored", True))
            if i in words:
                rollout.transcripts[i].append((words[i], said[row], turn.observation))
