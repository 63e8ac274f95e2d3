"""Reading prompts into the CUDA sampler's cache: packed, and what they share once (`prompt_tree`).

Every layer computes the fresh tokens of all prompts; their keys and values go to each row of the
cache that needs them, and each prompt's fresh tokens attend to all that is before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from fedrl.llm.generation.packed_weights import Layer, PackedWeights
from fedrl.llm.generation.prompt_tree import PromptTree, prompt_tree
from fedrl.llm.generation.torch_ops import DecodeOps
from fedrl.llm.transfer import sent
from fedrl.llm.varlen_attention import Sequences, attend, sequences

READ = 65_536
"""Prompt tokens per forward pass, where nothing else is said."""


class Reading(NamedTuple):
    """One pass over U different prompts, for R rows of the cache."""

    ids: Tensor  # [F] fresh tokens
    positions: Tensor  # [F]
    asked: Sequences
    read: Sequences
    where: Tensor | None  # [T] of every token its fresh one; None if all are fresh
    fresh: Tensor  # [W] which of the F tokens is written
    row: Tensor  # [W] to which row of the cache
    place: Tensor  # [W] and to which position
    ends: Tensor  # [R] the fresh token that a row's prompt ends with
    rows: Tensor  # [R] of the cache
    order: list[int]  # the same


def readings(
    prompts: Sequence[Sequence[int]], rows: Sequence[int], device: torch.device, tokens: int = READ
) -> list[Reading]:
    """Passes, of no more than so many tokens, that put every prompt into its row. All of it goes to
    the device first: a copy later would wait for the passes before it."""
    wanted: dict[tuple[int, ...], list[int]] = {}
    for prompt, row in zip(prompts, rows, strict=True):
        wanted.setdefault(tuple(prompt), []).append(row)
    return [
        _reading(prompt_tree(part), [wanted[prompt] for prompt in part], device)
        for part in passes(sorted(wanted), tokens)
    ]


def _reading(tree: PromptTree, rows: Sequence[Sequence[int]], device: torch.device) -> Reading:
    starts = np.concatenate([[0], np.cumsum(tree.read)])
    to = [row for some in rows for row in some]
    which = [u for u, some in enumerate(rows) for _ in some]
    lengths = [tree.read[u] for u in which]
    places = np.concatenate([np.arange(length) for length in lengths])
    source = places + np.repeat(starts[which], lengths)
    shares = len(tree.ids) < len(tree.where)

    def there(numbers: np.ndarray) -> Tensor:
        return sent(torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.int64)), device)

    where, fresh = there(tree.where) if shares else None, there(tree.where[source])
    return Reading(
        there(tree.ids), there(tree.positions), sequences(tree.asked, device),
        sequences(tree.read, device), where, fresh, there(np.repeat(to, lengths)), there(places),
        there(tree.last[which]), there(np.array(to)), to,
    )  # fmt: skip


def read(
    reading: Reading,
    weights: PackedWeights,
    ops: DecodeOps,
    cache: Sequence[tuple[Tensor, Tensor]],
) -> Tensor:
    """Fills the rows of the cache; the state after each row's prompt [R, d]."""
    heads, kv, size = weights.heads, weights.kv, weights.size
    cos, sin = weights.rope(reading.positions)
    x = embedding(reading.ids, weights.embed)
    for layer, (keys, values) in zip(weights.layers, cache, strict=True):
        qkv = linear(ops.rms_norm(x, layer.before, weights.eps), layer.qkv, layer.bias)
        ops.turn(qkv, cos, sin, heads + kv, False)
        ops.put(qkv, reading.fresh, reading.row, reading.place, keys, values)
        q, k, v = qkv.view(len(qkv), -1, size).split([heads, kv, kv], 1)
        if reading.where is not None:
            k, v = k[reading.where], v[reading.where]
        mixed = attend(q, k, v, reading.asked, reading.read, weights.scale).out
        rest_of_layer(x, layer, mixed.flatten(1), weights, ops)
    return x[reading.ends]


def rest_of_layer(
    x: Tensor, layer: Layer, mixed: Tensor, weights: PackedWeights, ops: DecodeOps
) -> None:
    """What comes after attention, added to `x` in place."""
    x.addmm_(mixed, layer.out.T)
    inner = linear(ops.rms_norm(x, layer.after, weights.eps), layer.up)
    x.addmm_(ops.swiglu(inner), layer.down.T)


def passes(prompts: Sequence[tuple[int, ...]], most: int) -> Iterator[Sequence[tuple[int, ...]]]:
    """Parts of the prompts, in order, of no more than `most` tokens but for a single longer one."""
    start, tokens = 0, 0
    for i, prompt in enumerate(prompts):
        if i > start and tokens + len(prompt) > most:
            yield prompts[start:i]
            start, tokens = i, 0
        tokens += len(prompt)
    yield prompts[start:]
