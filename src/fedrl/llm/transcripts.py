"""Episodes of an agent for people to read, and those of an evaluation that a run keeps.

An evaluation keeps a few of the episodes that it plays anyway: two tasks that are the same every
time, so that one sees the agent learn them, and two that are drawn. How they ended has no say, so
that what is shown is no selection. Long ones are shortened.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from fedrl.core import seeding
from fedrl.core.types import Json, Tables
from fedrl.envs.text import Task, spaced

if TYPE_CHECKING:
    from fedrl.llm.rollout import Rollout, Sample

SAME, DRAWN = 2, 2
"""Kept episodes of an evaluation: tasks that are always shown, and others."""
MOST_STEPS = 100
MOST_CHARACTERS = 40_000
"""Of all texts of a kept episode together."""


@dataclass(frozen=True)
class Step:
    """What the agent said, the command that was read from it, and the world's answer."""

    said: str
    command: str
    valid: bool
    saw: str


@dataclass(frozen=True)
class Episode:
    task: str
    kind: str
    goal: str
    begin: str  # what the world showed first
    won: bool
    steps: tuple[Step, ...]
    reward: float = 0.0  # of the whole episode: a shop pays in part for a near miss
    left_out: int = 0  # steps before the last one, of a long episode

    @property
    def length(self) -> int:
        return len(self.steps) + self.left_out

    @property
    def trouble(self) -> int:
        """Answers that were not well formed, or a command that got the same answer before."""
        seen: set[tuple[str, str]] = set()
        count = 0
        for step in self.steps:
            count += not step.valid or (step.command, step.saw) in seen
            seen.add((step.command, step.saw))
        return count


def readable_episodes(
    tasks: Sequence[Task], rollout: Rollout, which: Collection[int] | None = None
) -> list[Episode]:
    """A rollout with transcripts as episodes to read: these, or all."""
    samples: list[list[Sample]] = [[] for _ in tasks]
    for sample in rollout.samples:
        samples[sample.episode].append(sample)
    result = []
    for i in sorted(range(len(tasks)) if which is None else which):
        steps = tuple(
            Step(said, sample.command, sample.valid, saw)
            for sample, (_, said, saw) in zip(samples[i], rollout.transcripts[i], strict=True)
        )
        begin = samples[i][0].situation if samples[i] else ""
        won, reward = bool(rollout.won[i]), float(rollout.returns[i])
        task = tasks[i]
        result.append(Episode(task.id, task.category, rollout.goals[i], begin, won, steps, reward))
    return result


def kept_of(count: int, seed: int) -> list[int]:
    """Which of an evaluation's tasks are kept; `seed` is the evaluation's own."""
    same = spaced(range(count), min(SAME, count))
    others = [i for i in range(count) if i not in same]
    rng = seeding.generator(seed, "kept episodes")
    drawn = rng.choice(len(others), min(DRAWN, len(others)), replace=False)
    return sorted([*same, *(others[i] for i in drawn)])


def record(episode: Episode) -> Json:
    """A line of episodes.jsonl, but for its round."""
    return asdict(shortened(episode))


def from_record(line: Tables) -> Episode:
    """What `record` wrote; LookupError, TypeError or ValueError of anything else."""
    steps = tuple(
        Step(str(step["said"]), str(step["command"]), bool(step["valid"]), str(step["saw"]))
        for step in line["steps"]
    )
    return Episode(
        str(line["task"]), str(line["kind"]), str(line["goal"]), str(line["begin"]),
        bool(line["won"]), steps, float(line.get("reward") or 0.0), int(line.get("left_out", 0)),
    )  # fmt: skip


def shortened(episode: Episode) -> Episode:
    """Without steps before the last one, and with the longest texts cut, as far as it is long."""
    steps = episode.steps
    if len(steps) > MOST_STEPS:
        steps = (*steps[: MOST_STEPS - 1], steps[-1])
    texts = [episode.goal, episode.begin]
    texts += [text for step in steps for text in (step.said, step.command, step.saw)]
    longest = common_limit([len(text) for text in texts], MOST_CHARACTERS)
    return replace(
        episode,
        goal=cut(episode.goal, longest),
        begin=cut(episode.begin, longest),
        steps=tuple(
            Step(cut(s.said, longest), cut(s.command, longest), s.valid, cut(s.saw, longest))
            for s in steps
        ),
        left_out=len(episode.steps) - len(steps),
    )


def common_limit(lengths: Sequence[int], most: int) -> int:
    """The longest that each may be for all to be `most` together: short ones leave room."""
    ordered, room = sorted(lengths), most
    for i, length in enumerate(ordered):
        rest = len(ordered) - i
        if length * rest > room:
            return room // rest
        room -= length
    return ordered[-1]


def cut(text: str, most: int) -> str:
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]} … ({more:,} more characters)"
