"""Step samples as rows of tokens, padded or packed, and how a pass cuts them into minibatches.

One row is one environment step: prompt and answer. Minibatches differ in size by one sample at most
(a small rest would take an Adam step as long as any, on the noise of a few samples).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedrl.llm.generation.prompt_tree import prompt_tree
from fedrl.llm.generation.sampler import pad_right
from fedrl.llm.rollout import Sample
from fedrl.llm.transfer import sent
from fedrl.llm.varlen_attention import Sequences, sequences


class Rows(NamedTuple):
    """A batch of B step samples with A answer tokens; positions are in the flattened [B · T]."""

    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T]
    at: Tensor  # [A] positions whose next token is an answer's token
    target: Tensor  # [A] the answers' tokens
    row: Tensor  # [A] which row each belongs to
    before: Tensor  # [B] position of the last token of each prompt


class PackedRows(NamedTuple):
    """The same without padding: N tokens, row behind row, of which rows that begin alike have their
    beginning once; positions of answers are among the N."""

    ids: Tensor  # [N]
    positions: Tensor  # [N] of each token in its row
    asked: Sequences  # each different row's own tokens
    read: Sequences  # all of its tokens
    where: Tensor | None  # of each of the latter, which of the N it is; None if they are the same
    at: Tensor
    target: Tensor
    row: Tensor
    before: Tensor


@dataclass(frozen=True)
class Batching:
    """How one pass over samples is cut into optimiser steps and forward passes."""

    pad: int  # any token: masks come from lengths
    minibatch: int  # most samples per optimiser step
    microbatch: int  # samples per forward pass: less memory, the same result
    max_grad_norm: float
    generator: torch.Generator  # of the order
    pass_tokens: int | None = None  # most tokens per forward pass, but for a single longer sample


def to_rows(samples: Sequence[Sample], pad: int, device: torch.device) -> Rows:
    """Masks come from lengths, so `pad` may be any token, also one that answers use."""
    ids, mask, _ = pad_right([[*s.prompt, *s.answer] for s in samples], pad)
    starts = [i * ids.shape[1] for i in range(len(samples))]
    return Rows(*(part.to(device) for part in (ids, mask, *_answers(samples, starts))))


def to_packed(samples: Sequence[Sample], device: torch.device) -> PackedRows:
    whole = [(*s.prompt, *s.answer) for s in samples]
    different = sorted(set(whole))
    tree = prompt_tree(different)
    starts = dict(zip(different, [0, *itertools.accumulate(tree.read)], strict=False))
    at, target, row, before = _answers(samples, [starts[tokens] for tokens in whole])
    where = torch.from_numpy(tree.where)
    ids, positions, at, target, row, before, everywhere = (
        sent(part, device)
        for part in (
            torch.from_numpy(tree.ids), torch.from_numpy(tree.positions), where[at], target, row,
            where[before], where,
        )
    )  # fmt: skip
    return PackedRows(
        ids, positions, sequences(tree.asked, device), sequences(tree.read, device),
        everywhere if len(ids) < len(where) else None, at, target, row, before,
    )  # fmt: skip


def _answers(samples: Sequence[Sample], starts: Sequence[int]) -> list[Tensor]:
    """Where answers are asked for, their tokens, their rows, and the last token of each prompt."""
    at: list[int] = []
    target: list[int] = []
    row: list[int] = []
    before = [start + len(s.prompt) - 1 for start, s in zip(starts, samples, strict=True)]
    for i, sample in enumerate(samples):
        at += range(before[i], before[i] + len(sample.answer))
        target += sample.answer
        row += [i] * len(sample.answer)
    return [torch.tensor(part) for part in (at, target, row, before)]


def minibatches(count: int, batching: Batching) -> list[list[int]]:
    """Random minibatches of sample numbers, every sample once: as many as are needed for at most
    `minibatch` in each, all of them as large, but for one sample."""
    generator = batching.generator
    order = torch.randperm(count, generator=generator, device=generator.device).tolist()
    steps = math.ceil(count / batching.minibatch)
    return [order[i * count // steps : (i + 1) * count // steps] for i in range(steps)]


def microbatches(
    numbers: Sequence[int], samples: Sequence[Sample], size: int, tokens: int | None = None
) -> Iterator[list[int]]:
    """The numbers in parts of `size` and of no more than `tokens` tokens, alike lengths together
    because they pad little."""
    lengths = {i: len(samples[i].prompt) + len(samples[i].answer) for i in numbers}
    part: list[int] = []
    for i in sorted(numbers, key=lengths.__getitem__):
        full = tokens is not None and sum(lengths[j] for j in part) + lengths[i] > tokens
        if part and (full or len(part) == size):
            yield part
            part = []
        part.append(i)
    if part:
        yield part
