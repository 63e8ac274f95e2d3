"""Which beginnings of reviews are written on: some to learn from, others to be evaluated on.

A client learns from beginnings of its training reviews, drawn anew in every round. It is evaluated
on a few of its held-out ones (the paper's 30 queries), which are a function of those reviews alone:
the same in all rounds, for all methods and for all models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.imdb.world import Review, World


class Beginning(NamedTuple):
    """The first `length` tokens of a review."""

    owner: int
    id: str
    text: str
    length: int


def drawn(
    reviews: Sequence[tuple[int, Review]], tokens: Sequence[int], random: np.random.Generator
) -> list[Beginning]:
    """Of each of these (client, review), so long as `tokens`, shortest and longest, say."""
    lengths = random.integers(tokens[0], tokens[1] + 1, len(reviews)).tolist()
    return [
        Beginning(owner, review.id, review.text, length)
        for (owner, review), length in zip(reviews, lengths, strict=True)
    ]


def batches(
    world: World, owners: Sequence[int], size: int, tokens: Sequence[int], seed: int
) -> Iterator[list[Beginning]]:
    """Of these clients' training reviews, without end, each once before any of its owner's again.

    A batch is of one owner, and they take turns: texts that are compared with each other (their
    advantages have mean 0 within a batch) are then paid alike. In a mixed batch, whose text it is
    would count as merit.
    """
    random = seeding.generator(seed, "prompts")
    orders: dict[int, list[int]] = {owner: [] for owner in owners}
    for owner in itertools.cycle(owners):
        mine, order = world.train[owner], orders[owner]
        while len(order) < size:
            order += random.permutation(len(mine)).tolist()
        yield drawn([(owner, mine[i]) for i in order[:size]], tokens, random)
        del order[:size]


def some(world: World, owner: int, count: int, tokens: Sequence[int], seed: int) -> list[Beginning]:
    """Of one client's training reviews, to ask its person about."""
    random = seeding.generator(seed, "questions", client=owner)
    mine = world.train[owner]
    chosen = random.permutation(len(mine))[:count].tolist()
    return drawn([(owner, mine[i]) for i in chosen], tokens, random)


def queries(world: World, owner: int, count: int, tokens: Sequence[int]) -> list[Beginning]:
    """Of one client's held-out reviews."""
    held = world.held[owner]
    if len(held) < count:
        raise UserError(
            f"algorithm.queries is {count}, but client {owner} holds out only {len(held)} reviews: "
            "lower it, or raise world.reviews"
        )
    random = seeding.generator(0, "queries", client=owner)
    chosen = random.permutation(len(held))[:count].tolist()
    return drawn([(owner, held[i]) for i in chosen], tokens, random)


def check_apart(world: World, asked: Sequence[Sequence[Beginning]], read: set[str]) -> None:
    """Nobody trains on what anybody is evaluated on, and the first model has `read` neither."""
    evaluated = {one.id for mine in asked for one in mine}
    trained = {review.id for mine in world.train for review in mine}
    if both := evaluated & trained:
        raise UserError(f"review {min(both)} is both trained on and evaluated")
    for what, ids in (("evaluated", evaluated), ("a client's", trained)):
        if both := read & ids:
            raise UserError(
                f"algorithm.model: its warm start has read review {min(both)}, which is {what} "
                "here; choose world.public and world.family as the warm start did"
            )
