"""What may be told of the data behind a model: kinds, counts and digests, never its content."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple


class DataOutline(NamedTuple):
    unit: str  # what is counted: tasks, reviews
    held: tuple[int, ...]  # by each client
    trained: int  # by all together, each counted once
    evaluated: int
    kinds: int  # of what is evaluated; 0 where there are none
    training_digest: str
    evaluation_digest: str
    share: str = ""  # the metric that is a share of what is evaluated, if there is one


def outlined(
    unit: str,
    held: Sequence[int],
    trained: Collection[str],
    evaluated: Collection[str],
    kinds: int = 0,
    share: str = "",
) -> DataOutline:
    """Of data with these ids."""
    return DataOutline(
        unit, tuple(held), len(trained), len(evaluated), kinds, _digest(trained),
        _digest(evaluated), share,
    )  # fmt: skip


def _digest(ids: Iterable[str]) -> str:
    """Of all ids together, in any order: whoever has the data can tell that it is the same."""
    return blake2b("\n".join(sorted(ids)).encode(), digest_size=16).hexdigest()
