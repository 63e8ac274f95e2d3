"""What completes prompts in a rollout: the interface of the samplers, and what they share.

`version` says which weights a sampler answers with: a rollout made with older weights than the
learner believes is the classic silent bug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

Prompts = Sequence[Sequence[int]]
"""Token ids of every prompt of a batch."""


Generators: TypeAlias = torch.Generator | Sequence[torch.Generator]
"""Where random numbers come from: one for all prompts, or each its own, so that what it says does
not depend on who is completed beside it."""


class Completions(NamedTuple):
    tokens: list[list[int]]  # with the end token, unless the limit came first
    logprobs: list[list[float]]  # of the distribution that was sampled from


class Sampler(Protocol):
    """Completes a batch of prompts: plain transformers, our CUDA decoder, or vLLM."""

    version: int

    @property
    def copies_weights(self) -> bool:
        """Whether it must be handed the weights: the plain one reads the learner's own model."""
        ...

    def push(self, weights: Mapping[str, Tensor] | None, version: int) -> None:
        """New weights, named as in the plain model; None where they are the learner's own."""
        ...

    def generate(
        self, prompts: Prompts, limit: int, temperature: float, generator: Generators
    ) -> Completions:
        """Sample up to `limit` tokens each; temperature 0 takes the most likely."""
        ...


class Request(NamedTuple):
    """A prompt to complete, as one of many that come when they come."""

    key: int
    prompt: list[int]
    seed: int  # of its random numbers: what it says depends on nothing else
    limit: int | None = None  # of its tokens, below the stream's


class Answer(NamedTuple):
    key: int
    tokens: list[int]
    logprobs: list[float]


Answered = Callable[[list[Answer]], list[Request]]
"""Told of answers as they end, it says what to complete next."""


@runtime_checkable
class StreamingSampler(Sampler, Protocol):
    """A sampler in which an answer that ends makes room for the next prompt."""

    streams: bool

    def stream(
        self,
        requests: Sequence[Request],
        limit: int,
        temperature: float,
        answered: Answered,
        rows: int | None = None,
        most: int | None = None,
    ) -> None:
        """Complete these prompts and all that `answered` asks for, `rows` at a time (None: all), of
        no more than `most` tokens each."""
        ...


def fill_uniform(rows: Tensor, generator: Generators) -> Tensor:
    """Numbers in [0, 1) in every row, of its own generator where each has one."""
    if isinstance(generator, torch.Generator):
        return rows.uniform_(generator=generator)
    for row, own in zip(rows, generator, strict=True):
        row.uniform_(generator=own)
    return rows


def draw_seeds(count: int, below: int, generator: Generators) -> list[int]:
    """A whole number for each prompt."""
    one = [generator] if isinstance(generator, torch.Generator) else generator
    each = count if isinstance(generator, torch.Generator) else 1
    drawn = [torch.randint(below, (each,), generator=g, device=g.device).tolist() for g in one]
    return [seed for seeds in drawn for seed in seeds]


def pad_right(rows: Prompts, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids [B, T], mask [B, T] and lengths [B] of rows of different lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad)
    mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
    ids[mask] = torch.tensor([token for row in rows for token in row])
    return ids, mask.long(), lengths


def cut_at_end(tokens: Tensor, logprobs: Tensor, end: Tensor) -> Completions:
    """Everything up to the first end token, as lists."""
    ended = torch.isin(tokens, end)
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, tokens.shape[1]).tolist()
    rows = [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]
    logs = [row[:length] for row, length in zip(logprobs.tolist(), lengths, strict=True)]
    return Completions(rows, logs)
