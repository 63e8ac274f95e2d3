"""Rotary positions and attention of the decode step in Triton.

Attention reads exactly the filled part of each row, and each key-value head once for its whole
group of query heads. Both in one kernel were no faster (docs/benchmarks.md). Signatures are those
of the plain functions in `torch_ops`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


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
def _turn(  # type: ignore[no-untyped-def]
    qkv, cos, sin, sign, width, HEADS: tl.constexpr, HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    half = tl.arange(0, BLOCK_HALF)[None, :]
    inside = (head < HEADS) & (half < HALF)
    place = qkv + token * width + head * 2 * HALF + half
    a = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(place + HALF, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + token * HALF + half, mask=half < HALF, other=0.0)
    s = tl.load(sin + token * HALF + half, mask=half < HALF, other=0.0) * sign
    tl.store(place, a * c - b * s, mask=inside)
    tl.store(place + HALF, b * c + a * s, mask=inside)


@triton.jit
def _put(  # type: ignore[no-untyped-def]
    qkv, fresh, rows, places, keys, values, width, first, row_stride, head_stride,
    KV: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token of one row: its keys lie side by side, and its values behind them."""
    token = tl.program_id(0).to(tl.int64)
    along = tl.arange(0, BLOCK)
    inside = along < KV * SIZE
    source = qkv + tl.load(fresh + token) * width + first + along
    slot = tl.load(rows + token) * row_stride + tl.load(places + token) * SIZE
    slot += (along // SIZE) * head_stride + along % SIZE
    tl.store(keys + slot, tl.load(source, mask=inside), mask=inside)
    tl.store(values + slot, tl.load(source + KV * SIZE, mask=inside), mask=inside)


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


def rope(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    rows, kv, _, size = keys.shape
    heads = qkv.shape[1] // size - 2 * kv
    queries = qkv.new_empty(len(qkv), heads, size)
    launch(
        _rope, (len(qkv),), qkv, cos, sin, positions, queries, keys, values, len(qkv) // rows,
        keys.stride(0), keys.stride(1), HEADS=heads, KV=kv, SIZE=size,
        BLOCK_HEADS=power(heads + 2 * kv), BLOCK_HALF=power(size // 2),
    )  # fmt: skip
    return queries


def turn(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, back: bool) -> None:
    half = cos.shape[1]
    launch(
        _turn, (len(qkv),), qkv, cos, sin, -1.0 if back else 1.0, qkv.shape[1], HEADS=heads,
        HALF=half, BLOCK_HEADS=power(heads), BLOCK_HALF=power(half),
    )  # fmt: skip


def put(
    qkv: Tensor, fresh: Tensor, row: Tensor, place: Tensor, keys: Tensor, values: Tensor
) -> None:
    kv, size, width = keys.shape[1], keys.shape[3], qkv.shape[1]
    launch(
        _put, (len(fresh),), qkv, fresh, row, place, keys, values, width, width - 2 * kv * size,
        keys.stride(0), keys.stride(1), KV=kv, SIZE=size, BLOCK=power(kv * size), num_warps=2,
    )  # fmt: skip


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    rows, kv, _, size = keys.shape
    group = queries.shape[1] // kv
    out = queries.new_empty(rows, kv * group * size)
    # Sixteen is the least that the matrix units take; single precision fills the shared memory.
    stages = 3 if queries.dtype.itemsize == 2 else 1
    launch(
        _attention, (rows, kv), queries, keys, values, lengths, out, scale,
        keys.stride(0), keys.stride(1), KV=kv, GROUP=group, SIZE=size,
        BLOCK_GROUP=max(16, power(group)), BLOCK_SIZE=max(16, power(size)), BLOCK=64,
        num_stages=stages,
    )  # fmt: skip
    return out


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
    queries = rope(qkv, cos, sin, positions, keys, values)
    return attention(queries, keys, values, lengths, scale)


def launch(kernel: Any, grid: tuple[int, ...], *words: Any, **sizes: Any) -> None:
    kernel[grid](*words, **sizes)


def power(count: int) -> int:
    return int(triton.next_power_of_2(count))
