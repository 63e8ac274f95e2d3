"""FedSVRPG-M's anchored momentum for language agents: the local direction of a minibatch.

Paper: momentum for federated policy gradients under heterogeneity (FedSVRPG-M, Algorithm 1).

    d = β g(θ) + (1−β) [u + g(θ) − w g(θ_prev)] = g(θ) + (1−β) [u − w g(θ_prev)]

    g(θ)      gradient of the mean over step samples of A · log π_θ(answer | prompt)
    θ_prev    the model of the round before, u the server's direction, both broadcast
    w         π_θ_prev(answer) / π_θ(answer) of each step sample: E[w g(θ_prev)] = ∇J(θ_prev)
              although it is θ that answers (exact for an epoch's first minibatch)

The bracket is the federation's direction u plus the change of the client's gradient since the last
round: local steps follow all clients and not only this one.

Where we differ: the sample is one environment step (the paper's is a trajectory, whose product of
ratios over thousands of tokens would be 0 or infinite); advantages of a group take the place of
rewards to go; w may be clipped, which trades a bias for a bounded step.

u has the units of a gradient. With plain SGD of rate η that is mean Δ/(ηK); with an optimizer that
rescales its steps (AdamW), the mean of the directions themselves, which `update` gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedrl.llm.model_types import LanguageModel
from fedrl.llm.rl.batches import Batching, PackedRows, Rows, microbatches, minibatches
from fedrl.llm.rl.logprobs import answer_logprobs, learner_rows
from fedrl.llm.rollout import Sample


@dataclass(frozen=True)
class Anchor:
    """What the local direction is anchored to."""

    previous: LanguageModel  # θ_prev
    u: Sequence[Tensor]  # per trained parameter
    beta: float
    weight_clip: float = math.inf
    temperature: float = 1.0


def anchored_direction(
    model: LanguageModel, anchor: Anchor, batch: Rows | PackedRows, advantages: Tensor
) -> tuple[list[Tensor], Tensor]:
    """(d per trained parameter, uphill; w of every step sample [B] before clipping)."""
    here = sequence_logprobs(model, batch, anchor.temperature)
    now = torch.autograd.grad((advantages * here).mean(), trained(model))
    if anchor.beta == 1:  # the plain gradient, to the bit and at its price
        return list(now), torch.ones_like(advantages)
    there = sequence_logprobs(anchor.previous, batch, anchor.temperature)
    weight = (there - here).detach().exp()
    clipped = advantages * weight.clamp(max=anchor.weight_clip)
    before = torch.autograd.grad((clipped * there).mean(), trained(anchor.previous))
    together = zip(now, anchor.u, before, strict=True)
    return [g + (1 - anchor.beta) * (u - g_prev) for g, u, g_prev in together], weight


def sequence_logprobs(model: LanguageModel, batch: Rows | PackedRows, temperature: float) -> Tensor:
    """log π(answer | prompt) of every row [B]: a sum over the answer's tokens only."""
    logs, _ = answer_logprobs(model, batch, temperature)
    return logs.new_zeros(len(batch.before)).index_add(0, batch.row, logs)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def update(
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    advantages: Sequence[float],
    anchor: Anchor,
    batching: Batching,
) -> tuple[dict[str, float], list[Tensor]]:
    """One pass over the samples: the numbers to log, and the mean of the directions stepped."""
    model.eval()
    anchor.previous.eval()
    device = next(model.parameters()).device
    mean = [torch.zeros_like(p) for p in trained(model)]
    norms, weights = [], []
    cut = minibatches(len(samples), batching)
    steps = len(cut)
    for numbers in cut:
        total = [torch.zeros_like(p) for p in trained(model)]
        for part in microbatches(numbers, samples, batching.microbatch, batching.pass_tokens):
            batch = learner_rows(model, [samples[i] for i in part], batching.pad, device)
            advantage = torch.tensor([advantages[i] for i in part], device=device)
            direction, weight = anchored_direction(model, anchor, batch, advantage)
            weights.append(weight)
            for t, d in zip(total, direction, strict=True):
                t.add_(d, alpha=len(part) * steps / len(samples))
        set_gradients(model, total)
        norms.append(nn.utils.clip_grad_norm_(trained(model), batching.max_grad_norm))
        for m, parameter in zip(mean, trained(model), strict=True):
            assert parameter.grad is not None
            m.sub_(parameter.grad, alpha=1 / steps)
        optimizer.step()
    seen = torch.cat([*weights, torch.zeros(0, device=device)])
    count = max(len(seen), 1)
    return {
        "weight_mean": float(seen.sum()) / count,
        "weight_clipped": float((seen > anchor.weight_clip).sum()) / count,
        "gradient_norm": float(sum(norms, torch.zeros(()).to(device))) / max(steps, 1),
    }, mean


def set_gradients(model: nn.Module, uphill: Sequence[Tensor]) -> None:
    """Leave −d in `.grad`, for any optimizer to step."""
    for parameter, d in zip(trained(model), uphill, strict=True):
        parameter.grad = -d
