"""Dynamic sampling (DAPO, arXiv 2503.14476): tasks whose episodes all went alike are replaced.

    played ← a batch of B tasks
    up to `most` times, while fewer than B groups of `played` have a signal:
        play as many new tasks as are missing, drawn as the first were
    learn from the groups with a signal; without any, from all

A group has a signal if the method gives one of its steps an advantage. A task is then learned from
with a probability that is proportional to that of a mixed group: the law of drawing until B mixed
groups are found, where `most` is enough. What is reported of success is over all episodes that were
played, because those that are learned from were chosen by how they went.

Where we differ from DAPO: only what is missing is played again, not a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedrl.llm.rl.advantages import NO_ADVANTAGE
from fedrl.llm.rollout import Rollout


class Sampled(NamedTuple):
    played: Rollout  # everything
    learned: Rollout  # the groups with a signal


def groups_with_signal(advantages: np.ndarray, rollout: Rollout) -> list[int]:
    """The tasks some of whose steps went better or worse than others."""
    groups = np.asarray(rollout.groups)[[sample.episode for sample in rollout.samples]]
    return np.unique(groups[np.abs(advantages) > NO_ADVANTAGE]).tolist()


def sample_dynamically(
    draw: Callable[[int], Sequence[str]],
    play: Callable[[Sequence[str]], Rollout],
    advantage: Callable[[Rollout], np.ndarray],
    tasks: int,
    most: int,
) -> Sampled:
    """`tasks` groups with a signal, if `most` further rollouts find them.

    `draw` gives tasks, `play` their episodes with the rewards that are learned from.
    """
    played = play(draw(tasks))
    useful = groups_with_signal(advantage(played), played)
    for _ in range(most):
        missing = tasks - len(useful)
        if missing <= 0:
            break
        more = play(draw(missing))
        first = max(played.groups, default=-1) + 1
        useful += [first + group for group in groups_with_signal(advantage(more), more)]
        played = joined(played, more)
    return Sampled(played, only_groups(played, useful) if useful else played)


def joined(first: Rollout, second: Rollout) -> Rollout:
    """Both as one; the second's episodes and groups are numbered on."""
    assert first.version == second.version, "rollouts made with different weights"
    episodes, groups = len(first.groups), max(first.groups, default=-1) + 1
    samples = [replace(sample, episode=episodes + sample.episode) for sample in second.samples]
    return Rollout(
        [*first.samples, *samples],
        [*first.groups, *(groups + group for group in second.groups)],
        [*first.returns, *second.returns],
        [*first.won, *second.won],
        [*first.invalid, *second.invalid],
        [*first.lengths, *second.lengths],
        first.version,
        [*first.transcripts, *second.transcripts],
        [*first.truncated, *second.truncated],
        [*first.scored, *second.scored],
        [*first.goals, *second.goals],
    )


def only_groups(rollout: Rollout, groups: Collection[int]) -> Rollout:
    """Without the episodes of other groups."""
    kept = set(groups)
    return rollout.only([i for i, group in enumerate(rollout.groups) if group in kept])
