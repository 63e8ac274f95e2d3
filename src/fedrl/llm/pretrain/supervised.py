"""Supervised steps on samples' answers: how a warm start learns, before any reward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedrl.llm.policy import Policy
from fedrl.llm.rl.logprobs import answer_logprobs, learner_rows
from fedrl.llm.rollout import Sample

WARMUP = 50
"""Steps in which the learning rate rises to its highest."""

TOKENS_PER_PASS = {"cpu": 4096, "cuda": 32_768}
"""Tokens of a forward pass, padding included. More than this fills a cache (or a GPU) and pads
short examples for the sake of a long one; less waits for kernel launches."""


class Supervised(NamedTuple):
    """How long and how fast a model learns."""

    steps: int
    lr: float  # at its highest
    batch: int  # samples per step
    seed: int = 0  # of their order


def train_supervised(
    policy: Policy,
    samples: Sequence[Sample],
    plan: Supervised,
    tell: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Steps of AdamW on the answers' tokens, the rate rising at first and then falling to 10%.

    With the model's own dropout, where it has some: no ratio is formed that it could spoil.
    """
    model = policy.model
    generator = torch.Generator().manual_seed(plan.seed)
    optimizer = torch.optim.AdamW(model.parameters(), plan.lr, weight_decay=0.01)
    model.train()
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.lr * min(1.0, (step + 1) / WARMUP) * (1 - 0.9 * step / plan.steps)
        chosen = torch.randint(len(samples), (plan.batch,), generator=generator).tolist()
        picked = [samples[i] for i in chosen]
        tokens = sum(len(sample.answer) for sample in picked)
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=policy.device)
        for part in length_batches(picked, TOKENS_PER_PASS[policy.device.type]):
            loss = -_logprobs(policy, part).sum() / tokens
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tell(step, float(total))
    model.eval()


@torch.no_grad()
def negative_log_likelihood(policy: Policy, samples: Sequence[Sample]) -> float:
    """The mean of −log p over the answers' tokens: what `train_supervised` lowers."""
    policy.model.eval()
    total = torch.zeros((), device=policy.device)
    for part in length_batches(samples, TOKENS_PER_PASS[policy.device.type]):
        total -= _logprobs(policy, part).sum()
    return float(total) / sum(len(sample.answer) for sample in samples)


def length_batches(samples: Sequence[Sample], padded: int) -> Iterator[list[Sample]]:
    """Samples of alike lengths together, so many that their padded rows hold `padded` tokens."""
    part: list[Sample] = []
    for sample in sorted(samples, key=lambda s: len(s.prompt) + len(s.answer)):
        width = len(sample.prompt) + len(sample.answer)
        if part and (len(part) + 1) * width > padded:
            yield part
            part = []
        part.append(sample)
    yield part


def _logprobs(policy: Policy, samples: Sequence[Sample]) -> Tensor:
    rows = learner_rows(policy.model, samples, policy.pad, policy.device)
    return answer_logprobs(policy.model, rows, 1.0)[0]
