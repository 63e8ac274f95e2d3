"""The loss of a policy gradient: clipped ratio, KL to the reference model, entropy.

A method may have a loss of its own (`Objective`): a function of what the learner knows of a
microbatch (`TokenStep`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fedrl.core.types import Tensors
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


class TrainedWeights:
    """What is trained, now and as the round began; the latter is copied when it is asked for."""

    def __init__(self, now: Mapping[str, Tensor], start: Tensors) -> None:
        self.now, self._start = now, start

    @cached_property
    def start(self) -> dict[str, Tensor]:
        return {name: torch.tensor(self._start[name], device=p.device)
                for name, p in self.now.items()}  # fmt: skip

    def squared_distance(self) -> Tensor:
        """‖θ − θ_r‖², which can be differentiated by θ."""
        moved = [((p - self.start[name]) ** 2).sum() for name, p in self.now.items()]
        return torch.stack([part.to(moved[0].device) for part in moved]).sum()


@dataclass(frozen=True)
class TokenStep:
    """What a loss sees of a microbatch: step samples with A answer tokens in all."""

    now: Tensor  # [A] log π_θ of every answer token: what is learned
    old: Tensor  # [A] of the policy that answered
    reference: Tensor | None  # [A] of the model that the run began with; None where kl is 0
    entropy: Tensor  # [A] of π_θ at the token's position
    advantage: Tensor  # [A] of the step that the token is an answer to
    sample: Tensor  # [A] which of the microbatch's samples it belongs to, from 0
    weight: Tensor  # [A] what it counts in its minibatch's loss
    share: float  # of its minibatch's samples that are here; 1 in all
    terms: Loss
    weights: TrainedWeights

    def total(self, each: Tensor) -> Tensor:
        """The minibatch's loss, as far as these tokens go, from one per token [A]."""
        return (each * self.weight).sum()


@dataclass(frozen=True)
class Objective:
    """A method's own loss: per answer token [A], or a scalar, of which a minibatch's microbatches
    are added up."""

    loss: Callable[[TokenStep], Tensor]
    weights: TrainedWeights

    def __call__(self, step: TokenStep) -> Tensor:
        found = self.loss(step)
        return step.total(found) if found.ndim else found


def clipped_objective(step: TokenStep) -> Tensor:
    """`clipped_loss` of a microbatch [A]."""
    return clipped_loss(
        step.now, step.old, step.reference, step.entropy, step.advantage, step.terms
    )


def token_weights(samples: Sequence[Sample], average: str, steps: int) -> list[float]:
    """What a token of each sample's answer weighs in its minibatch's loss, of which there are
    `steps`: the mean of the losses is the mean over all samples, whatever minibatch each is in."""
    if average == "token":
        return [steps / sum(len(sample.answer) for sample in samples)] * len(samples)
    return [steps / (len(samples) * len(sample.answer)) for sample in samples]
