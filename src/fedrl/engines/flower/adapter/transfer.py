"""Objects of messages on their way, few at a time: Flower's own functions hold all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from flwr.supercore.inflatable.inflatable_object import InflatableObject

ON_THE_WAY = 2
"""One is sent while the next is made. More would take memory, and wait for the same processor."""
Item = TypeVar("Item")
Found = TypeVar("Found")


def ahead(function: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    """What the function makes of each, in order; the next is under way while one is used.

    Its threads have ended when the last is given out: who takes as many as there were never comes
    back for the end, and threads left to the garbage collector are waited for wherever that runs,
    within `Thread.start` for instance, whose lock they need to end.
    """
    under_way: deque[Future[Found]] = deque()
    with ThreadPoolExecutor(ON_THE_WAY) as pool:
        for item in items:
            if len(under_way) == ON_THE_WAY:
                yield under_way.popleft().result()
            under_way.append(pool.submit(function, item))
            del item
        while len(under_way) > 1:
            yield under_way.popleft().result()
    if under_way:
        yield under_way.popleft().result()


def push(
    objects: Mapping[str, InflatableObject],
    wanted: Collection[str],
    put: Callable[[str, bytes], None],
) -> None:
    """Those of a message that are wanted, each made when it is its turn."""
    asked = set(wanted)
    contents = ((n, thing.deflate()) for n, thing in objects.items() if n in asked)
    push_contents(contents, put)


def push_contents(contents: Iterable[tuple[str, bytes]], put: Callable[[str, bytes], None]) -> None:
    for _ in ahead(lambda one: put(*one), contents):
        pass
