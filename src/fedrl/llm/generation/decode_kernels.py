"""The decode step's kernels in Triton: each is one pass where PyTorch makes five to twelve.

A decode step of a small model is bound by the number of kernels and, at large batches, by reading
the key-value cache once; `attention` reads exactly the filled part of each row, and each key-value
head once for its whole group of query heads. Signatures are those of the plain functions in
`torch_ops`, to which a test holds them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rms_norm(x, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    value = tl.load(x + row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    value = value.to(out.dtype.element_ty).to(tl.float32)  # rounded here, as the model does
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, value * scale, mask=inside)


@triton.jit
def _swiglu(x, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(x + 2 * row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + (2 * row + 1) * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, gate * tl.sigmoid(gate) * up, mask=inside)


@triton.jit
def _rope(  # type: ignore[no-untyped-def]
    qkv, cos, sin, positions, queries, keys, values, per_row, row_stride, head_stride,
    HEADS: tl.constexpr, KV: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    """One token: turn its queries and keys, and put keys and values where the cache has them."""
    HALF: tl.constexpr = SIZE // 2
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    half = tl.arange(0, BLOCK_HALF)[None, :]
    small = half < HALF
    inside = (head < HEADS + 2 * KV) & small
    source = qkv + token * (HEADS + 2 * KV) * SIZE + head * SIZE + half
    a = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + token * HALF + half, mask=small, other=0.0)
    s = tl.load(sin + token * HALF + half, mask=small, other=0.0)
    turns = head < HEADS + KV
    first = tl.where(turns, a * c - b * s, a)
    second = tl.where(turns, b * c + a * s, b)
    query = inside & (head < HEADS)
    place = queries + token * HEADS * SIZE + head * SIZE + half
    tl.store(place, first, mask=query)
    tl.store(place + HALF, second, mask=query)
    slot = (token // per_row) * row_stride + tl.load(positions + token) * SIZE + half
    key = inside & (head >= HEADS) & turns
    place = keys + slot + (head - HEADS) * head_stride
    tl.store(place, first, mask=key)
    tl.store(place + HALF, second, mask=key)
    value = inside & (head >= HEADS + KV)
    place = values + slot + (head - HEADS - KV) * head_stride
    tl.store(place, first, mask=value)
    tl.store(place + HALF, second, mask=value)


@triton.jit
def _attention(  # type: ignore[no-untyped-def]
    queries, keys, values, lengths, out, scale, row_stride, head_stride,
    KV: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_GROUP: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row, one key-value head, its whole group of query heads: an online softmax."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    length = tl.load(lengths + row)
    group = tl.arange(0, BLOCK_GROUP)[:, None]
    size = tl.arange(0, BLOCK_SIZE)
    along = tl.arange(0, BLOCK)
    heads = (row * KV + head) * GROUP * SIZE + group * SIZE + size[None, :]
    wanted = (group < GROUP) & (size[None, :] < SIZE)
    query = tl.load(queries + heads, mask=wanted, other=0.0)
    start_of = row * row_stride + head * head_stride
    most = tl.full([BLOCK_GROUP], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_GROUP], tl.float32)
    mixed = tl.zeros([BLOCK_GROUP, BLOCK_SIZE], tl.float32)
    for start in range(0, length, BLOCK):
        at = start + along
        filled = at < length
        mask = filled[None, :] & (size[:, None] < SIZE)
        key = tl.load(keys + start_of + at[None, :] * SIZE + size[:, None], mask=mask, other=0.0)
        score = tl.dot(query, key, input_precision="ieee") * scale
        score = tl.where(filled[None, :], score, -float("inf"))
        peak = tl.maximum(most, tl.max(score, 1))
        weight = tl.exp(score - peak[:, None])
        keep = tl.exp(most - peak)
        total = total * keep + tl.sum(weight, 1)
        mask = filled[:, None] & (size[None, :] < SIZE)
        value = tl.load(
            values + start_of + at[:, None] * SIZE + size[None, :], mask=mask, other=0.0
        )
        mixed = mixed * keep[:, None]
        mixed += tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        most = peak
    tl.store(out + heads, mixed / total[:, None], mask=wanted)


@triton.jit
def _sample(  # type: ignore[no-untyped-def]
    logits, noise, temperature, sampling, token, logprob, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Gumbel's maximum and the log of the softmax in one pass over the vocabulary."""
    row = tl.program_id(0).to(tl.int64)
    along = tl.arange(0, BLOCK)
    warmth, draws = tl.load(temperature), tl.load(sampling)
    most = -float("inf")
    total = 0.0
    best = -float("inf")
    winner = 0
    its_logit = 0.0
    for start in range(0, WIDTH, BLOCK):
        at = start + along
        inside = at < WIDTH
        logit = tl.load(logits + row * WIDTH + at, mask=inside, other=-float("inf"))
        logit = logit.to(tl.float32) / warmth
        uniform = tl.load(noise + row * WIDTH + at, mask=inside, other=0.5)
        shaken = logit - draws * tl.log(-tl.log(tl.maximum(uniform, 1e-20)))
        peak = tl.maximum(most, tl.max(logit, 0))
        total = total * tl.exp(most - peak) + tl.sum(tl.exp(logit - peak), 0)
        most = peak
        highest, which = tl.max(shaken, 0), tl.argmax(shaken, 0)
        its = tl.max(tl.where(along == which, logit, -float("inf")), 0)
        better = highest > best
        winner = tl.where(better, start + which, winner)
        its_logit = tl.where(better, its, its_logit)
        best = tl.where(better, highest, best)
    tl.store(token + row, winner)
    tl.store(logprob + row, its_logit - most - tl.log(total))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    rows, width = x.shape
    out = torch.empty_like(x)
    _launch(_rms_norm, (rows,), x, weight, out, eps, WIDTH=width, BLOCK=_power(width))
    return out


def swiglu(x: Tensor) -> Tensor:
    rows, width = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, width)
    block = min(_power(width), 2048)
    _launch(_swiglu, (rows, triton.cdiv(width, block)), x, out, WIDTH=width, BLOCK=block)
    return out


def rope(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    rows, kv, _, size = keys.shape
    heads = qkv.shape[1] // size - 2 * kv
    queries = qkv.new_empty(len(qkv), heads, size)
    _launch(
        _rope, (len(qkv),), qkv, cos, sin, positions, queries, keys, values, len(qkv) // rows,
        keys.stride(0), keys.stride(1), HEADS=heads, KV=kv, SIZE=size,
        BLOCK_HEADS=_power(heads + 2 * kv), BLOCK_HALF=_power(size // 2),
    )  # fmt: skip
    return queries


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    rows, kv, _, size = keys.shape
    group = queries.shape[1] // kv
    out = queries.new_empty(rows, kv * group * size)
    # Sixteen is the least that the matrix units take; single precision fills the shared memory.
    stages = 3 if queries.dtype.itemsize == 2 else 1
    _launch(
        _attention, (rows, kv), queries, keys, values, lengths, out, scale,
        keys.stride(0), keys.stride(1), KV=kv, GROUP=group, SIZE=size,
        BLOCK_GROUP=max(16, _power(group)), BLOCK_SIZE=max(16, _power(size)), BLOCK=64,
        num_stages=stages,
    )  # fmt: skip
    return out


def sample(
    logits: Tensor, noise: Tensor, temperature: Tensor, sampling: Tensor
) -> tuple[Tensor, Tensor]:
    rows, width = logits.shape
    token = torch.empty(rows, dtype=torch.long, device=logits.device)
    logprob = torch.empty(rows, dtype=torch.float32, device=logits.device)
    _launch(
        _sample, (rows,), logits, noise, temperature, sampling, token, logprob,
        WIDTH=width, BLOCK=min(_power(width), 4096), num_warps=8,
    )  # fmt: skip
    return token, logprob


def _launch(kernel: Any, grid: tuple[int, ...], *words: Any, **sizes: Any) -> None:
    kernel[grid](*words, **sizes)


def _power(count: int) -> int:
    return int(triton.next_power_of_2(count))
