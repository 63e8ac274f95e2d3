"""The loss of a policy gradient: clipped ratio, KL to the reference model, entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedrl.llm.rollout import Sample


@dataclass(frozen=True)
class Loss:
    """The terms of the objective, weights as in the papers' release."""

    clip: float = 0.2
    kl: float = 0.01
    entropy: float = 0.001
    temperature: float = 1.0
    # What counts the same in a minibatch: every answer token, or every step sample.
    average: Literal["token", "sequence"] = "token"


def k3(now: Tensor, reference: Tensor) -> Tensor:
    """π_ref/π − log(π_ref/π) − 1: never negative, and unbiased for KL(π ‖ π_ref)."""
    gap = reference - now
    return gap.exp() - gap - 1


def clipped_loss(
    now: Tensor,
    old: Tensor,
    reference: Tensor | None,
    entropy: Tensor,
    advantage: Tensor,
    weights: Loss,
) -> Tensor:
    """Per answer token [A]: −min(ρA, clip(ρ)A) + β·k3(π, π_ref) − c·H."""
    ratio = (now - old).exp()
    clipped = ratio.clamp(1 - weights.clip, 1 + weights.clip)
    total = -torch.minimum(ratio * advantage, clipped * advantage)
    if reference is not None and weights.kl:
        total = total + weights.kl * k3(now, reference)
    if weights.entropy:
        total = total - weights.entropy * entropy
    return total


def token_weights(samples: Sequence[Sample], average: str, steps: int) -> list[float]:
    """What a token of each sample's answer weighs in its minibatch's loss, of which there are
    `steps`: the mean of the losses is the mean over all samples, whatever minibatch each is in."""
    if average == "token":
        return [steps / sum(len(sample.answer) for sample in samples)] * len(samples)
    return [steps / (len(samples) * len(sample.answer)) for sample in samples]
