"""Advantages of a rollout's steps within a task's group of episodes: GRPO, RLOO, GiGPO.

Every estimator turns a rollout into one number per step sample; all tokens of the step's answer
share it. Statistics are over episodes of the same task, never weighted by their length.

    GRPO    A = (R − mean) / std                      over the task's group of episodes
    RLOO    A = R − mean of the OTHERS                of the group
    GiGPO   A = A_episode + w · A_step                A_episode as GRPO; A_step compares the
            discounted returns-to-go of all steps of the group that start from the same situation

R is the episode's return Σ_t γ^t r_t, which is not discounted by default (γ = 1): with γ below 1 an
episode that is won sooner went better. GiGPO's step part has a γ of its own.

Deviations divide by n − 1. Where a group has no variance (or one member) there is nothing to
compare and the advantage is 0.

An answer that is not well formed costs its own step, and nothing else (`subtract_penalties`):
A − p for that step, after all comparisons, PPO's too. The penalty is no reward. In a return it
would count against the 49 well-formed answers of the same episode; in a return-to-go, or in GAE,
against those before it; and in a group that failed throughout, division by a deviation that is
nothing but penalties would blow it up. So the other steps keep their advantages to the bit, the
critic values what the world pays, and a penalty is never larger than it was set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # rollouts are played with PyTorch; what is computed of them needs none
    from fedrl.llm.rollout import Rollout

ROUNDING = 1e-6
"""A deviation below this is rounding error: dividing by it would turn noise into a signal."""
NO_ADVANTAGE = 1e-9
"""Advantages below this teach nothing: groups whose episodes all went alike."""


def grpo(rollout: Rollout, scale: bool = True, gamma: float = 1.0) -> np.ndarray:
    """(R − mean) / std within the group [samples]; without `scale` it is only centred."""
    returns = episode_returns(rollout, gamma)
    return _per_sample(rollout, normalised(returns, rollout.groups, scale))


def rloo(rollout: Rollout, gamma: float = 1.0) -> np.ndarray:
    """R − mean of the others of the group [samples], which is (R − mean) · n / (n − 1)."""
    count = np.bincount(rollout.groups)[rollout.groups]
    centred = normalised(episode_returns(rollout, gamma), rollout.groups, scale=False)
    return _per_sample(rollout, centred * count / np.maximum(count - 1, 1))


def gigpo(
    rollout: Rollout,
    gamma: float = 0.95,
    weight: float = 1.0,
    scale: bool = True,
    episode_gamma: float = 1.0,
) -> np.ndarray:
    """Group-in-group [samples]; arXiv 2505.10978. `weight` is ω, `scale` divides both parts.

    `gamma` discounts the returns-to-go of steps, `episode_gamma` the returns of episodes.

    A situation counts as the same only within one task's group: the same words in another task
    mean another goal.
    """
    numbers: dict[tuple[int, str], int] = {}
    anchors = [
        numbers.setdefault((rollout.groups[s.episode], s.situation), len(numbers))
        for s in rollout.samples
    ]
    step = normalised(returns_to_go(rollout, gamma), anchors, scale)
    return grpo(rollout, scale, episode_gamma) + weight * step


ESTIMATORS: dict[str, Callable[..., np.ndarray]] = {
    "grpo": grpo,
    "rloo": rloo,
    "gigpo": gigpo,
}
"""`gamma` is of the episodes' returns in the first two, of the steps' in GiGPO."""


def episode_returns(rollout: Rollout, gamma: float) -> Sequence[float] | np.ndarray:
    """Σ_t γ^t r_t of every episode [episodes]: what the first step's return-to-go is."""
    if gamma == 1:
        return rollout.returns
    returns, to_go = np.zeros(len(rollout.groups)), returns_to_go(rollout, gamma)
    for i, sample in enumerate(rollout.samples):
        if sample.step == 0:
            returns[sample.episode] = to_go[i]
    return returns


def returns_to_go(rollout: Rollout, gamma: float) -> np.ndarray:
    """Σ_{h≥t} γ^(h−t) r_h of every step sample [samples], from the rewards of the steps."""
    returns = np.zeros(len(rollout.samples))
    after = np.zeros(len(rollout.groups))
    for i in last_steps_first(rollout):
        sample = rollout.samples[i]
        returns[i] = after[sample.episode] = sample.reward + gamma * after[sample.episode]
    return returns


def last_steps_first(rollout: Rollout) -> list[int]:
    """Numbers of the samples, every episode from its last step to its first."""
    return sorted(range(len(rollout.samples)), key=lambda i: -rollout.samples[i].step)


def set_success_rewards(rollout: Rollout) -> None:
    """1 for the last step of an episode that was won, nothing else, whatever the world paid."""
    for sample in rollout.samples:
        ended = sample.step == rollout.lengths[sample.episode] - 1
        sample.reward = float(ended and rollout.won[sample.episode])
    rollout.returns = [float(won) for won in rollout.won]


def set_penalties(rollout: Rollout, amount: float) -> None:
    """Every answer that was not well formed shall cost `amount`."""
    for sample in rollout.samples:
        sample.penalty = 0.0 if sample.valid else amount


def subtract_penalties(advantages: np.ndarray, rollout: Rollout) -> np.ndarray:
    """The advantages less the penalties of their own steps [samples]."""
    return advantages - np.array([sample.penalty for sample in rollout.samples])


def zero_advantage_share(advantages: np.ndarray, rollout: Rollout) -> float:
    """Share of tasks none of whose steps went better or worse than another."""
    groups = np.asarray(rollout.groups)[[sample.episode for sample in rollout.samples]]
    differ = np.unique(groups[np.abs(advantages) > NO_ADVANTAGE])
    return 1 - len(differ) / max(len(set(rollout.groups)), 1)


def negate_rewards(rollout: Rollout) -> None:
    """Give every reward and penalty the other sign, as a poisoned client does."""
    for sample in rollout.samples:
        sample.reward, sample.penalty = -sample.reward, -sample.penalty
    rollout.returns = [-score for score in rollout.returns]


def normalised(
    values: Sequence[float] | np.ndarray, groups: Sequence[int], scale: bool
) -> np.ndarray:
    """value − mean of its group, over the group's deviation where `scale`."""
    value, group = np.asarray(values, float), np.asarray(groups, int)
    count = np.maximum(np.bincount(group), 1)
    centred = value - (np.bincount(group, value) / count)[group]
    variance = np.bincount(group, centred**2) / np.maximum(count - 1, 1)
    deviation = np.sqrt(variance)[group]
    varied = deviation > ROUNDING
    return np.where(varied, centred / np.where(varied & scale, deviation, 1.0), 0.0)


def _per_sample(rollout: Rollout, advantages: np.ndarray) -> np.ndarray:
    return advantages[[sample.episode for sample in rollout.samples]]
