"""The CUDA sampler's memory: one store of keys and values that all buckets share, and what was
captured on it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedrl.llm.generation.decode_buffers import DecodeBuffers, free_bytes, new_buffers
from fedrl.llm.generation.packed_weights import PackedWeights
from fedrl.llm.out_of_memory import NoRoom

Bucket = tuple[int, int, int, int]
"""Rows, cache length, what of it attention reads, steps."""


class DecodeRoom:
    """`captures`: graphs are kept; `draws`: random numbers of the batch have a place; `memory` is
    the most bytes, by default what the GPU has free."""

    def __init__(
        self,
        weights: PackedWeights,
        pad: int,
        captures: bool,
        draws: bool,
        memory: int | None,
    ) -> None:
        self.weights, self.pad, self.memory = weights, pad, memory
        self.captures, self.draws = captures, draws
        self.store = torch.empty(0, dtype=weights.dtype, device=weights.device)
        self.noise = torch.empty(0, device=weights.device)
        self.graphs: dict[Bucket, torch.cuda.CUDAGraph] = {}
        self._buffers: dict[tuple[int, int], DecodeBuffers] = {}
        self.pool = torch.cuda.graph_pool_handle() if captures else None

    def buffers(self, rows: int, length: int) -> DecodeBuffers:
        if (rows, length) not in self._buffers:
            self._grow(rows, length)
            shape = (rows, self.weights.kv, length, self.weights.size)
            size = math.prod(shape)
            cache: list[tuple[Tensor, Tensor]] = [
                (k[:size].view(shape), v[:size].view(shape)) for k, v in self.store
            ]
            self._buffers[rows, length] = new_buffers(
                rows, length, self.pad, self.noise[:rows], cache, self.weights.device
            )
        return self._buffers[rows, length]

    def _grow(self, rows: int, length: int) -> None:
        """Room for the cache, if it lacks: what was captured on the old room goes with it."""
        size = rows * self.weights.kv * length * self.weights.size
        noise = rows if self.draws else 0
        if self.store.shape[-1] >= size and len(self.noise) >= noise:
            return
        size = max(size, self.store.shape[-1])
        noise = max(noise, len(self.noise))
        self._buffers.clear()
        self.graphs.clear()
        # A pool whose last graph is gone takes no others.
        self.pool = torch.cuda.graph_pool_handle() if self.captures else None
        self.store, self.noise = self.store.new_empty(0), self.noise.new_empty(0)
        vocabulary, layers = len(self.weights.head), len(self.weights.layers)
        needed = 2 * layers * size * self.store.dtype.itemsize + 4 * noise * vocabulary
        free = self.memory if self.memory is not None else free_bytes(self.weights.device)
        if free is not None and needed > free:
            raise NoRoom(
                f"the cache for {rows} episodes of {length} tokens takes {needed / 1e9:.3g} GB and "
                f"{free / 1e9:.3g} GB are free: about {rows * free // needed} fit side by side",
                "lower algorithm.tasks, algorithm.group or algorithm.answer_tokens",
            )
        # Zeros, because plain attention multiplies what it has not filled by 0.
        self.store = self.store.new_zeros(layers, 2, size)
        self.noise = self.noise.new_full((noise, vocabulary), 0.5)
