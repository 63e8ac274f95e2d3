"""Causal attention over packed sequences of different lengths, without padding.

Queries [Q, heads, size] and keys [K, kv, size] lie one sequence behind the other; `offsets` say
where each begins. A sequence may have fewer queries than keys: they are its last ones, so that what
was read before is attended to and not computed again. On a GPU in half precision PyTorch's own
flash attention does it (the package flash-attn is not needed); elsewhere sequence by sequence.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fedrl.llm.transfer import sent


class Sequences(NamedTuple):
    """Where packed sequences begin and end, and how long the longest is."""

    offsets: Tensor  # [B + 1], int32
    longest: int

    def bounds(self) -> list[tuple[int, int]]:
        ends: list[int] = self.offsets.tolist()
        return list(itertools.pairwise(ends))


class Attended(NamedTuple):
    """What attention gave, and what its way back needs."""

    out: Tensor  # [Q, heads, size]
    rest: tuple[Tensor, ...]


def sequences(lengths: list[int], device: torch.device) -> Sequences:
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return Sequences(sent(offsets, device), max(lengths, default=0))


def flashes(x: Tensor) -> bool:
    return x.is_cuda and x.dtype.itemsize == 2


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, asked: Sequences, read: Sequences, scale: float
) -> Attended:
    """The last token of every sequence is its last query and its last key."""
    if flashes(queries):
        out, *rest, _ = torch.ops.aten._flash_attention_forward(
            queries, keys, values, asked.offsets, read.offsets, asked.longest, read.longest,
            0.0, True, False, scale=scale,
        )  # fmt: skip
        return Attended(out, tuple(rest))
    return Attended(_one_by_one(queries, keys, values, asked, read, scale), ())


def attend_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    attended: Attended,
    asked: Sequences,
    read: Sequences,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values."""
    if flashes(queries):
        lse, rng, unused = attended.rest
        return torch.ops.aten._flash_attention_backward(
            grad, queries, keys, values, attended.out, lse, asked.offsets, read.offsets,
            asked.longest, read.longest, 0.0, True, rng, unused, scale=scale,
        )  # fmt: skip
    with torch.enable_grad():
        q, k, v = (x.detach().requires_grad_() for x in (queries, keys, values))
        out = _one_by_one(q, k, v, asked, read, scale)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), grad)
    return dq, dk, dv


def _one_by_one(
    queries: Tensor, keys: Tensor, values: Tensor, asked: Sequences, read: Sequences, scale: float
) -> Tensor:
    parts = []
    for (a, b), (c, d) in zip(asked.bounds(), read.bounds(), strict=True):
        q, k, v = (x.transpose(0, 1)[None] for x in (queries[a:b], keys[c:d], values[c:d]))
        seen = torch.ones(b - a, d - c, dtype=torch.bool, device=q.device).tril(d - c - (b - a))
        gqa = queries.shape[1] != keys.shape[1]
        mixed = scaled_dot_product_attention(q, k, v, seen, scale=scale, enable_gqa=gqa)
        parts.append(mixed[0].transpose(0, 1))
    return torch.cat(parts)
