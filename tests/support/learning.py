"""One pass of the policy gradient over samples of a tiny model, and what its tests compare."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from fedrl.llm.rl.batches import Batching
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rl.policy_gradient import update
from fedrl.llm.rollout import Sample

WHOLE = 10_000
"""A minibatch that holds any number of samples."""


def still(model: nn.Module, lr: float = 0.0) -> torch.optim.Optimizer:
    """With rate 0 the weights stay and the gradient of the last minibatch can be read."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr)


def learned(
    model: nn.Module,
    batch: list[Sample],
    advantages: list[float],
    weights: Loss,
    microbatch: int = WHOLE,
    max_grad_norm: float = math.inf,
    **more: Any,
) -> tuple[dict[str, float], list[Tensor]]:
    """The numbers and the gradient of one minibatch with all samples."""
    found = update(
        model, still(model), batch, advantages, weights,
        Batching(0, WHOLE, microbatch, max_grad_norm, torch.Generator().manual_seed(0)), **more,
    )  # fmt: skip
    return found, [p.grad.clone() for p in model.parameters() if p.grad is not None]


def some_advantages(count: int) -> list[float]:
    return [math.sin(3 * i + 1) for i in range(count)]


def close(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-6) -> None:
    assert len(found) == len(expected) > 0
    largest = max(float(e.abs().max()) for e in expected)
    assert largest > 1e-3, "a gradient of nothing proves nothing"
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance * largest)


@torch.no_grad()
def one_by_one(model: nn.Module, sample: Sample, temperature: float) -> Tensor:
    """An answer's log-probabilities without any batching or padding."""
    whole = torch.tensor([[*sample.prompt, *sample.answer]])
    logs = (model(input_ids=whole).logits[0] / temperature).log_softmax(-1)
    at = range(len(sample.prompt) - 1, whole.shape[1] - 1)
    return torch.stack([logs[i, whole[0, i + 1]] for i in at])
