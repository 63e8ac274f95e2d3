"""Guesses that wait while the model moves on, and what becomes of them: `Query.stale`.

    deleted    an answer was deleted since, from which the guess may follow: the next round drops it
    learned    the model has learned from other answers since: the next round makes it anew
    replaced   it was made anew and waits no longer; who was looking at it may answer all the same

`dealt` are queries that somebody has closed or deleted: these stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from fedrl.feedback.queries import Query


def after_learning(queries: Iterable[Query]) -> list[Query]:
    return [
        one._replace(stale="learned") if _is_guess(one) and not one.stale else one
        for one in queries
    ]  # fmt: skip


def after_deletion(queries: Iterable[Query], dealt: Set[str]) -> list[Query]:
    """Of guesses that wait no longer nothing is left: they may follow from it, too."""
    return [
        one._replace(stale="deleted") if _is_guess(one) and one.stale != "replaced" else one
        for one in queries
        if one.stale != "replaced" or one.id in dealt
    ]


def in_next_round(queries: Iterable[Query], dealt: Set[str], most: int) -> list[Query]:
    """At most so many that were made anew, the newest."""
    kept = list[Query]()
    for one in queries:
        if one.id in dealt or not one.stale:
            kept.append(one)
        elif one.stale != "deleted" and most > 0:
            kept.append(one._replace(stale="replaced"))
            most -= 1
    return kept


def _is_guess(query: Query) -> bool:
    return query.guessed and query.kind == "rate"
