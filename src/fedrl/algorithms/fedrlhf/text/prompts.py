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

from fedrl.algorithms.fedrlhf.text.settings import Settings
from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.reviews import OwnReviews, Review, World


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
    world: World,
    owners: Sequence[int],
    size: int,
    tokens: Sequence[int],
    seed: int,
    together: int = 1,
) -> Iterator[list[Prompt]]:
    """Of these clients' training reviews, without end, each once before any of its owner's again.

    A batch is of `together` owners, fewer only if there are fewer, with as many prompts of each,
    and they take turns.
    """
    random = seeding.generator(seed, "prompts")
    orders: dict[int, list[int]] = {owner: [] for owner in owners}
    turns, parts = itertools.cycle(owners), min(together, len(owners))
    while True:
        batch: list[Prompt] = []
        for part in range(parts):
            owner, count = next(turns), (part + 1) * size // parts - part * size // parts
            reviews, order = world.train[owner], orders[owner]
            while len(order) < count:
                order += random.permutation(len(reviews)).tolist()
            batch += cut_prompts(owner, [reviews[i] for i in order[:count]], tokens, random)
            del order[:count]
        yield batch


def query_prompts(
    world: World, owner: int, count: int, tokens: Sequence[int], seed: int
) -> list[Prompt]:
    """Of one client's training reviews, to ask its person about."""
    random = seeding.generator(seed, "questions", client=owner)
    return _some_prompts(owner, world.train[owner], count, tokens, random)


def eval_prompts(world: World, settings: Settings, owner: int) -> list[Prompt]:
    """Of one client's held-out reviews; fewer than are asked for only where they are its own."""
    held, count = world.held[owner], settings.eval_prompts
    if len(held) < count and not isinstance(world, OwnReviews):
        raise UserError(
            f"algorithm.eval_prompts is {count}, but client {owner} holds out only {len(held)} "
            "reviews: lower it, or raise world.reviews"
        )
    random = seeding.generator(0, "queries", client=owner)
    return _some_prompts(owner, held, count, settings.prompt_tokens, random)


def _some_prompts(
    owner: int,
    reviews: Sequence[Review],
    count: int,
    tokens: Sequence[int],
    random: np.random.Generator,
) -> list[Prompt]:
    chosen = random.permutation(len(reviews))[:count].tolist()
    return cut_prompts(owner, [reviews[i] for i in chosen], tokens, random)


def check_apart(world: World, prompts: Sequence[Sequence[Prompt]], read: set[str]) -> None:
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
