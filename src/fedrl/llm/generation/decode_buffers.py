"""The CUDA sampler's buffers: what one captured decode step reads and writes, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROUND = 128
"""Cache lengths are multiples of this, so that few graphs serve many prompts."""


@dataclass(frozen=True)
class DecodeBuffers:
    """What a captured step reads and writes, for one bucket: always at the same addresses.

    Rows of the cache are in the order of reading: different prompts first, by length. `token`,
    `logprob`, `over` and `noise` are in the caller's order; `row` and `source` lead from one to
    the other.
    """

    token: Tensor
    logprob: Tensor
    over: Tensor
    position: Tensor
    row: Tensor  # of the cache, for each of the caller's
    source: Tensor  # the inverse
    temperature: Tensor
    sampling: Tensor  # 1, or 0 for the most likely token
    noise: Tensor  # uniform, [rows, vocabulary]
    cache: list[tuple[Tensor, Tensor]]  # per layer: keys, values [rows, kv, length, size]

    @property
    def shape(self) -> tuple[int, int]:
        return self.cache[0][0].shape[0], self.cache[0][0].shape[2]


def bucket_rows(rows: int) -> int:
    """Powers of two up to 64, then multiples of 64: at most as many again idle, few graphs."""
    return 1 << (rows - 1).bit_length() if rows <= 64 else round_up(rows, 64)


def round_up(count: int, step: int) -> int:
    return -(-count // step) * step


def free_bytes(device: torch.device) -> int | None:
    """What the GPU has free, with what PyTorch holds but does not use; None without a GPU."""
    if device.type != "cuda":
        return None
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held
