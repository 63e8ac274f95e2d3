"""The interface of a world of reviews: texts with a sentiment, some of them each client's own.

A world that has those of `ReviewsWorld` plugs into FedRLHF for texts (`algorithms.fedrlhf.text`).
Where clients bring reviews of their own (`partition.strategy = "own"`) it is an `OwnReviews`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from fedrl.core.lazy_sequence import LazySequence


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


class SplitReviews(NamedTuple):
    """What one folder holds."""

    train: Reviews
    held: Reviews


class OwnReviews:
    """Clients with reviews of their own, any number each; a client's folder is opened when it is
    first asked for, on a node one, by the driver of nodes none.

    `open(k)` opens client k's, and with k = `clients` nobody's, on which the model is evaluated
    unless `held_out` says that each client does so on its own. `heaviest` is the most that a client
    can weigh.
    """

    def __init__(
        self,
        clients: int,
        open: Callable[[int], SplitReviews],
        heaviest: float,
        held_out: Literal["public", "clients"],
    ) -> None:
        self.clients, self.heaviest, self.held_out = clients, heaviest, held_out
        folders = LazySequence(clients + 1, open)
        self.train: Sequence[Reviews] = LazySequence(clients + 1, lambda k: folders[k].train)
        self.held: Sequence[Reviews] = LazySequence(clients + 1, lambda k: folders[k].held)

    @property
    def nobody(self) -> int:
        """The owner of the public reviews."""
        return self.clients


World = ReviewsWorld | OwnReviews
