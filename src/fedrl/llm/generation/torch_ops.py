"""What a layer does besides matrix products, in PyTorch; `decode_kernels` has it in Triton."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import silu


class DecodeOps(Protocol):
    """This module, or `decode_kernels`, to the decoder."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, /) -> Tensor: ...

    def swiglu(self, x: Tensor, /) -> Tensor: ...

    def rope(
        self,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor,
        keys: Tensor,
        values: Tensor,
        /,
    ) -> Tensor: ...

    def attention(
        self, queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float, /
    ) -> Tensor: ...

    def sample(
        self, logits: Tensor, noise: Tensor, temperature: Tensor, sampling: Tensor, /
    ) -> tuple[Tensor, Tensor]: ...


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def swiglu(x: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return silu(left) * right


def rope(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """Queries [tokens, heads, size]; writes keys and values at each token's row and position.

    The tokens are those of all rows of `keys` in order, equally many of each.
    """
    kv, size = keys.shape[1], keys.shape[3]
    x = qkv.view(len(qkv), -1, size)
    c, s = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    a, b = x[:, :-kv].chunk(2, -1)
    turned = torch.cat((a * c - b * s, b * c + a * s), -1)
    row = torch.arange(len(x), device=x.device) // (len(x) // len(keys))
    keys[row, :, positions] = turned[:, -kv:]
    values[row, :, positions] = x[:, -kv:]
    return turned[:, :-kv]


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """One query per row over the first `lengths` of its keys [rows, heads · size]."""
    rows, kv, filled, size = keys.shape
    grouped = queries.reshape(rows, kv, -1, size)
    scores = (grouped @ keys.transpose(-1, -2)).float() * scale
    empty = torch.arange(filled, device=keys.device) >= lengths[:, None]
    weights = scores.masked_fill_(empty[:, None, None], -torch.inf).softmax(-1)
    return (weights.to(values.dtype) @ values).reshape(rows, -1)


def sample(
    logits: Tensor, noise: Tensor, temperature: Tensor, sampling: Tensor
) -> tuple[Tensor, Tensor]:
    """A token per row, by Gumbel's maximum where `sampling` is 1, and its log-probability."""
    logprobs = (logits / temperature).log_softmax(-1)
    gumbel = -(-noise.clamp_min(1e-20).log()).log()
    token = (logprobs + sampling * gumbel).argmax(-1)
    return token, logprobs.gather(-1, token[:, None])[:, 0]
