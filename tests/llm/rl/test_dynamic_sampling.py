"""Groups without a signal are replaced, by the law that says so."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("torch", reason="rollouts need the extra llm")

from fedrl.llm.rl.advantages import grpo
from fedrl.llm.rl.dynamic_sampling import (
    groups_with_signal,
    joined,
    only_groups,
    sample_dynamically,
)
from fedrl.llm.rollout import Rollout, Sample

GROUP = 2
WINS = {"easy": (1.0, 1.0), "mixed": (1.0, 0.0), "hard": (0.0, 0.0)}
"""What the episodes of a task are paid, always."""


def played(tasks) -> Rollout:
    """Two episodes of one step each; a sample's command says whose it is."""
    paid = [score for task in tasks for score in WINS[task]]
    samples = [
        Sample(i, 0, [1], [2], [-0.5], "start", reward=score, command=tasks[i // GROUP])
        for i, score in enumerate(paid)
    ]
    count = len(paid)
    return Rollout(
        samples, [i // GROUP for i in range(count)], list(paid), [score == 1 for score in paid],
        [0] * count, [1] * count, 7, [], [False] * count, [True] * count,
    )  # fmt: skip


def learned_tasks(rollout: Rollout) -> tuple[str, ...]:
    names = {rollout.groups[s.episode]: s.command for s in rollout.samples}
    return tuple(names[group] for group in sorted(names))


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_what_is_learned_from_has_the_law_of_drawing_again_by_enumeration(most):
    """All draws of a batch of 2 and its replacements, each of three tasks as likely: how many mixed
    groups there are follows that each of `most` + 1 turns fills every empty place with chance 1/3.
    """
    batch, law = 2, Counter()
    for draws in itertools.product(WINS, repeat=batch * (most + 1)):
        left = iter(draws)
        found = sample_dynamically(
            lambda count, left=left: [next(left) for _ in range(count)], played, grpo, batch, most
        )
        names = learned_tasks(found.learned)
        mixed = names.count("mixed")
        if mixed:  # then nothing else is learned from
            assert set(names) == {"mixed"}
        law[mixed] += Fraction(1, len(WINS) ** len(draws))
        assert len(found.played.groups) == GROUP * (len(draws) - len(list(left)))
    empty = Fraction(2, 3) ** (most + 1)  # a place that no turn fills
    assert law == {0: empty**2, 1: 2 * empty * (1 - empty), 2: (1 - empty) ** 2}


def test_only_what_is_missing_is_played_again():
    asked = []

    def draw(count):
        asked.append(count)
        return ["mixed", "easy", "hard"][:count] if len(asked) == 1 else ["mixed"] * count

    found = sample_dynamically(draw, played, grpo, 3, 5)
    assert asked == [3, 2]
    assert learned_tasks(found.learned) == ("mixed",) * 3
    assert learned_tasks(found.played) == ("mixed", "easy", "hard", "mixed", "mixed")
    np.testing.assert_allclose(np.abs(grpo(found.learned)), np.sqrt(0.5))


def test_without_any_signal_all_is_handed_on():
    found = sample_dynamically(lambda count: ["easy"] * count, played, grpo, 2, 1)
    assert found.learned is found.played
    assert len(found.played.groups) == 4 * GROUP
    assert groups_with_signal(grpo(found.played), found.played) == []


def test_advantages_of_groups_do_not_depend_on_what_they_are_joined_with():
    whole = joined(played(["mixed", "hard"]), played(["easy", "mixed"]))
    assert whole.groups == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [s.episode for s in whole.samples] == list(range(8))
    part = only_groups(whole, [0, 3])
    np.testing.assert_array_equal(grpo(part), grpo(played(["mixed", "mixed"])))


def test_rollouts_of_other_weights_are_not_joined():
    other = played(["mixed"])
    other.version = 8
    with pytest.raises(AssertionError, match="different weights"):
        joined(played(["mixed"]), other)
