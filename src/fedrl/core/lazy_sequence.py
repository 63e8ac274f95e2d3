"""A sequence whose items are made when they are asked for, and kept, up to a number of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar, overload

Item = TypeVar("Item")

KEPT = 256


class LazySequence(Sequence[Item]):
    """`read(k)` makes item k."""

    def __init__(self, count: int, read: Callable[[int], Item], kept: int = KEPT) -> None:
        self._count = count
        self._read = lru_cache(maxsize=kept)(read)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        return self._read(range(self._count)[index])
