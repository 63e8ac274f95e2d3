"""Prompts, the beginnings of reviews: some to learn from, others to be evaluated on.

A client learns from prompts of its training reviews, drawn anew in every round. It is evaluated on
a few of its held-out ones (the paper's 30 queries), which are a function of those reviews alone:
the same in all rounds, for all methods and for all models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.reviews import Review, ReviewsWorld


class Prompt(NamedTuple):
    """The first `length` tokens of a review."""

    owner: int
    id: str
    text: str
    length: int


def cut_prompts(
    owner: int, reviews: Sequence[Review], tokens: Sequence[int], random: np.random.Generator
) -> list[Prompt]:
    """Of each of a client's reviews, so long as `tokens`, shortest and longest, say."""
    lengths = random.integers(tokens[0], tokens[1] + 1, len(reviews)).tolist()
    return [
        Prompt(owner, review.id, review.text, length)
        for review, length in zip(reviews, lengths, strict=True)
    ]


def prompt_batches(
    world: ReviewsWorld, owners: Sequence[int], size: int, tokens: Sequence[int], seed: int
) -> Iterator[list[Prompt]]:
    """Of these clients' training reviews, without end, each once before any of its owner's again.

    A batch is of one owner, and they take turns: texts that are compared with each other (their
    advantages have mean 0 within a batch) are then paid alike. In a mixed batch, whose text it is
    would count as merit.
    """
    random = seeding.generator(seed, "prompts")
    orders: dict[int, list[int]] = {owner: [] for owner in owners}
    for owner in itertools.cycle(owners):
        reviews, order = world.train[owner], orders[owner]
        while len(order) < size:
            order += random.permutation(len(reviews)).tolist()
        yield cut_prompts(owner, [reviews[i] for i in order[:size]], tokens, random)
        del order[:size]


def query_prompts(
    world: ReviewsWorld, owner: int, count: int, tokens: Sequence[int], seed: int
) -> list[Prompt]:
    """Of one client's training reviews, to ask its person about."""
    random = seeding.generator(seed, "questions", client=owner)
    return _some_prompts(owner, world.train[owner], count, tokens, random)


def eval_prompts(
    world: ReviewsWorld, owner: int, count: int, tokens: Sequence[int]
) -> list[Prompt]:
    """Of one client's held-out reviews."""
    held = world.held[owner]
    if len(held) < count:
        raise UserError(
            f"algorithm.eval_prompts is {count}, but client {owner} holds out only {len(held)} "
            "reviews: lower it, or raise world.reviews"
        )
    random = seeding.generator(0, "queries", client=owner)
    return _some_prompts(owner, held, count, tokens, random)


def _some_prompts(
    owner: int,
    reviews: Sequence[Review],
    count: int,
    tokens: Sequence[int],
    random: np.random.Generator,
) -> list[Prompt]:
    chosen = random.permutation(len(reviews))[:count].tolist()
    return cut_prompts(owner, [reviews[i] for i in chosen], tokens, random)


def check_apart(world: ReviewsWorld, prompts: Sequence[Sequence[Prompt]], read: set[str]) -> None:
    """Nobody trains on what anybody is evaluated on, and the first model has `read` neither."""
    evaluated = {prompt.id for own in prompts for prompt in own}
    trained = {review.id for own in world.train for review in own}
    if both := evaluated & trained:
        raise UserError(f"review {min(both)} is both trained on and evaluated")
    for what, ids in (("evaluated", evaluated), ("a client's", trained)):
        if both := read & ids:
            raise UserError(
                f"algorithm.model: its warm start has read review {min(both)}, which is {what} "
                "here; choose world.public and world.family as the warm start did"
            )
