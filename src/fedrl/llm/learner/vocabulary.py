"""Log-probabilities and entropies of answer tokens without a [tokens, vocabulary] copy of anything.

Rows go through the output layer in parts of at most CHUNK logits; of each part only the token's
log-probability, the entropy and the log-sum-exp stay, and the way back computes the logits again.
Products are of half precision on a GPU, as the sampler's are, their results single: it is a logit
rounded to half precision that the ratio of new to old probability would take for a change of the
policy, not its factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fedrl.llm.learner.plain_ops import LearnerOps
from fedrl.llm.learner.wide_mm import wide_mm

CHUNK = 2**26
"""Logits at a time: a quarter of a gigabyte."""


def chunk_rows(vocabulary: int) -> int:
    return max(CHUNK // vocabulary, 1)


class TokenStatistics(torch.autograd.Function):
    """(log-probability of the target, entropy) [A] of hidden states [A, d] at a temperature."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        target: Tensor,
        temperature: float,
        dtype: torch.dtype,
        ops: LearnerOps,
    ) -> tuple[Tensor, Tensor]:
        x, weight = hidden.to(dtype), head.to(dtype)
        parts = [
            ops.choose(wide_mm(x[part], weight.T), target[part], temperature)
            for part in _parts(len(x), len(head))
        ]
        told, entropy, lse = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(hidden, head, target, entropy, lse)
        ctx.how = temperature, dtype, ops
        return told, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, head, target, entropy, lse = ctx.saved_tensors
        temperature, dtype, ops = ctx.how
        x, weight = hidden.to(dtype), head.to(dtype)
        d_hidden, d_head = torch.empty_like(hidden), None
        for part in _parts(len(x), len(head)):
            logits = wide_mm(x[part], weight.T)
            both = grads[0][part], grads[1][part]
            each = ops.choose_backward(
                logits, target[part], temperature, lse[part], entropy[part], both, dtype
            )
            del logits
            d_hidden[part] = each @ weight
            if ctx.needs_input_grad[1]:
                more = wide_mm(each.T, x[part])
                d_head = more if d_head is None else d_head.add_(more)
        d_head = None if d_head is None else d_head.to(head.dtype)
        return d_hidden, d_head, None, None, None, None


def _parts(rows: int, vocabulary: int) -> Iterator[slice]:
    size = chunk_rows(vocabulary)
    for start in range(0, max(rows, 1), size):
        yield slice(start, start + size)
