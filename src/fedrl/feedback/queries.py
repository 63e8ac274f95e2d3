"""What a client asks a person, and what comes back. None of it ever leaves the client.

    rate      one item and the model's score for it: is the score too high (−1), right (0) or too
              low (+1)?
    compare   two items and the model's scores: is the first (−1) or the second (+1) better, or
              neither (0)? A preference query

A source may not answer: a person has not come to it yet or cannot say, a log does not hold it.
"Cannot say" is not 0, which says that a score is right or that neither item is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Kind = Literal["rate", "compare"]
Stale = Literal["", "deleted", "learned", "replaced"]
"""Why a guess that waits is none of today's (`stale_guesses`)."""


class Query(NamedTuple):
    """`id` is unique within a client and the same whenever the same is asked again."""

    id: str
    kind: Kind
    keys: tuple[str, ...]  # of the items in the client's own data: one to rate, two to compare
    items: tuple[str, ...]  # as a person reads them
    scores: tuple[float, ...]  # the model's, on the scale that the query is about
    prompt: str = ""  # how all items begin, where a model went on from something that was given
    guessed: bool = True  # whether scores tell items apart; else each is where all items start
    stale: Stale = ""  # what has happened since the guess was made


class Answer(NamedTuple):
    question: str  # the query's id
    value: float  # H in [−1, 1]


class FeedbackSource(Protocol):
    """Simulated, logged or live: one client's (`sources`)."""

    def answers(self, queries: Sequence[Query], seed: int) -> list[Answer]:
        """To as many of the queries as there are answers for, in their order."""
        ...


class OppositeSource(NamedTuple):
    """A `FeedbackSource` that says the opposite of another: a poisoned client's."""

    source: FeedbackSource

    def answers(self, queries: Sequence[Query], seed: int) -> list[Answer]:
        said = self.source.answers(queries, seed)
        return [Answer(answer.question, -answer.value) for answer in said]
