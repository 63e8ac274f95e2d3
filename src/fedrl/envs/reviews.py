"""The interface of a world of reviews: texts with a sentiment, some of them each client's own.

A world that has these plugs into FedRLHF for texts (`algorithms.fedrlhf.text`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Review(NamedTuple):
    id: str
    text: str
    label: int  # 1 positive, 0 negative


Reviews = tuple[Review, ...]


class ReviewsWorld(Protocol):
    """`train[k]` and `held[k]` are client k's reviews, `public` nobody's."""

    clients: int
    public: Reviews
    train: tuple[Reviews, ...]
    held: tuple[Reviews, ...]
