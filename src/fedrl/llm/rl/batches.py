"""Step samples as padded rows of tokens, and how a pass cuts them into minibatches.

One row is one environment step: prompt and answer. Minibatches differ in size by one sample at most
(a small rest would take an Adam step as long as any, on the noise of a few samples).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedrl.llm.generation.sampler import pad_right
from fedrl.llm.rollout import Sample


class Rows(NamedTuple):
    """A batch of B step samples with A answer tokens; positions are in the flattened [B · T]."""

    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T]
    at: Tensor  # [A] positions whose next token is an answer's token
    target: Tensor  # [A] the answers' tokens
    row: Tensor  # [A] which row each belongs to
    before: Tensor  # [B] position of the last token of each prompt


@dataclass(frozen=True)
class Batching:
    """How one pass over samples is cut into optimiser steps and forward passes."""

    pad: int  # any token: masks come from lengths
    minibatch: int  # most samples per optimiser step
    microbatch: int  # samples per forward pass: less memory, the same result
    max_grad_norm: float
    generator: torch.Generator  # of the order


def to_rows(samples: Sequence[Sample], pad: int, device: torch.device) -> Rows:
    """Masks come from lengths, so `pad` may be any token, also one that answers use."""
    ids, mask, _ = pad_right([[*s.prompt, *s.answer] for s in samples], pad)
    width = ids.shape[1]
    at: list[int] = []
    target: list[int] = []
    row: list[int] = []
    before = [i * width + len(sample.prompt) - 1 for i, sample in enumerate(samples)]
    for i, sample in enumerate(samples):
        at += range(before[i], before[i] + len(sample.answer))
        target += sample.answer
        row += [i] * len(sample.answer)
    numbers = (torch.tensor(part) for part in (at, target, row, before))
    return Rows(*(part.to(device) for part in (ids, mask, *numbers)))


def minibatches(count: int, batching: Batching) -> list[list[int]]:
    """Random minibatches of sample numbers, every sample once: as many as are needed for at most
    `minibatch` in each, all of them as large, but for one sample."""
    generator = batching.generator
    order = torch.randperm(count, generator=generator, device=generator.device).tolist()
    steps = math.ceil(count / batching.minibatch)
    return [order[i * count // steps : (i + 1) * count // steps] for i in range(steps)]


def microbatches(
    numbers: Sequence[int], samples: Sequence[Sample], size: int
) -> Iterator[list[int]]:
    """The numbers in parts of `size`, alike lengths together because they pad little."""
    order = sorted(numbers, key=lambda i: len(samples[i].prompt) + len(samples[i].answer))
    for start in range(0, len(order), size):
        yield order[start : start + size]
