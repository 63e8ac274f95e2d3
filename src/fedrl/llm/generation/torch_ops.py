"""What a layer does besides matrix products, in PyTorch; `decode_kernels` has it in Triton."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import silu

from fedrl.llm.generation.decode_buffers import DecodeBuffers
from fedrl.llm.generation.row_noise import Draws, uniform


class DecodeOps(Protocol):
    """This module, or `decode_kernels`, to the decoder."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, /) -> Tensor: ...

    def swiglu(self, x: Tensor, /) -> Tensor: ...

    def turned_attention(
        self,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor,
        keys: Tensor,
        values: Tensor,
        lengths: Tensor,
        filled: int,
        scale: float,
        /,
    ) -> Tensor: ...

    def say(
        self, buffers: DecodeBuffers, token: Tensor, logprob: Tensor, end: Tensor, /
    ) -> None: ...

    def sample(
        self, logits: Tensor, noise: Tensor | Draws, temperature: Tensor, sampling: Tensor, /
    ) -> tuple[Tensor, Tensor]: ...

    def turn(self, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, back: bool, /) -> None: ...

    def put(
        self,
        qkv: Tensor,
        fresh: Tensor,
        row: Tensor,
        place: Tensor,
        keys: Tensor,
        values: Tensor,
        /,
    ) -> None: ...


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


def turn(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, back: bool) -> None:
    """Rotary positions on the first `heads` heads of every token, in place; `back` turns back."""
    half = cos.shape[1]
    x = qkv.view(len(qkv), -1, 2, half)[:, :heads]
    c, s = cos[:, None], -sin[:, None] if back else sin[:, None]
    a, b = x[:, :, 0].float(), x[:, :, 1].float()
    x.copy_(torch.stack((a * c - b * s, b * c + a * s), 2))


def put(
    qkv: Tensor, fresh: Tensor, row: Tensor, place: Tensor, keys: Tensor, values: Tensor
) -> None:
    """Keys and values of these tokens, turned already, into rows of the cache."""
    kv, size = keys.shape[1], keys.shape[3]
    x = qkv.view(len(qkv), -1, size)[fresh]
    keys[row, :, place] = x[:, -2 * kv : -kv]
    values[row, :, place] = x[:, -kv:]


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


def turned_attention(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    filled: int,
    scale: float,
) -> Tensor:
    """`rope`, then `attention` over no more than the first `filled` of every row."""
    queries = rope(qkv, cos, sin, positions, keys, values)
    return attention(queries, keys[:, :, :filled], values[:, :, :filled], lengths, scale)


def say(buffers: DecodeBuffers, token: Tensor, logprob: Tensor, end: Tensor) -> None:
    """Behind what each row has said; of a row that is over it is not counted."""
    goes_on, at = ~buffers.over, buffers.count[:, None]
    buffers.token.copy_(token)
    buffers.said.scatter_(1, at, token[:, None])
    buffers.logprobs.scatter_(1, at, logprob[:, None])
    buffers.position.add_(goes_on)
    buffers.count.add_(goes_on)
    ends = (token[:, None] == end).any(1)
    buffers.over.logical_or_(ends | (buffers.count >= buffers.limit))


def sample(
    logits: Tensor, noise: Tensor | Draws, temperature: Tensor, sampling: Tensor
) -> tuple[Tensor, Tensor]:
    """A token per row, by Gumbel's maximum where `sampling` is 1, and its log-probability."""
    if isinstance(noise, Draws):
        noise = uniform(noise, logits.shape[1])
    logprobs = (logits / temperature).log_softmax(-1)
    gumbel = -(-noise.clamp_min(1e-20).log()).log()
    token = (logprobs + sampling * gumbel).argmax(-1)
    return token, logprobs.gather(-1, token[:, None])[:, 0]
