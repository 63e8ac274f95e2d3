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

    A row that is `over` neither moves nor says anything more until a prompt is put there.
    """

    token: Tensor  # the last that each row said
    over: Tensor
    position: Tensor  # of that token in the row
    count: Tensor  # tokens said so far
    limit: Tensor  # most of them
    said: Tensor  # [rows, length]
    logprobs: Tensor  # [rows, length]
    seeds: Tensor  # of each row's random numbers
    temperature: Tensor
    sampling: Tensor  # 1, or 0 for the most likely token
    noise: Tensor  # uniform, [rows, vocabulary]; empty where rows have seeds
    cache: list[tuple[Tensor, Tensor]]  # per layer: keys, values [rows, kv, length, size]

    @property
    def shape(self) -> tuple[int, int]:
        return self.cache[0][0].shape[0], self.cache[0][0].shape[2]

    @property
    def moved(self) -> tuple[Tensor, ...]:
        """What a step changes, but for what it writes behind the last token."""
        return self.token, self.over, self.position, self.count


def new_buffers(
    rows: int,
    length: int,
    pad: int,
    noise: Tensor,
    cache: list[tuple[Tensor, Tensor]],
    device: torch.device,
) -> DecodeBuffers:
    def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return DecodeBuffers(
        token=zeros(rows).fill_(pad),
        over=torch.ones(rows, dtype=torch.bool, device=device),
        position=zeros(rows),
        count=zeros(rows),
        limit=zeros(rows),
        said=zeros(rows, length),
        logprobs=zeros(rows, length, dtype=torch.float32),
        seeds=zeros(rows),
        temperature=zeros(1, dtype=torch.float32),
        sampling=zeros(1, dtype=torch.float32),
        noise=noise,
        cache=cache,
    )


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
