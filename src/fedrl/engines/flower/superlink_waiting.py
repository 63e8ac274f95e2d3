"""Nodes that ask for messages wait at the SuperLink until there is one: no round waits for a poll.

Flower's SuperNode asks for messages, and if there are none sleeps for 3 s. Here a question for
which there is no answer yet is kept for `HELD_SECONDS`, and answered the moment that the driver has
sent something: a SuperNode that has handed in an answer asks again at once, so that in a run it
never sleeps, and one without a run asks every 23 s and not every 3 s. Nothing in its process is
changed, and a kept question costs this one a coroutine.

The driver announces a message first and sends its pieces then. A SuperNode that asks for a piece
too early waits for a second or more before it tries again, so it is told when all are here, or
after `ANNOUNCED_SECONDS`: of what is large it then fetches the first pieces while the last ones are
on their way.

With its last request before a client's work a SuperNode confirms that the message has come. Then
it looks for the answer at once, when there cannot be one, and from then on twice a second. So a
confirmation is answered `CONFIRMED_SECONDS` late: the steps of a secure sum take less, and their
answers are there when it looks; others are found half a second late at most, as before.

A connection that has died without a word would swallow a message that is answered into it, and
Flower gives each one once. So a node that asks for the next one and has not asked for anything of
the last gets the same again.

When the SuperLink is stopped all questions are answered with no message: cut off by its end, one
would get an error, after which a SuperNode asks no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, NamedTuple

HELD_SECONDS = 20.0
"""Flower's client gives a request up after 30 s."""
ANNOUNCED_SECONDS = 1.0
CONFIRMED_SECONDS = 0.2
GIVEN_AGAIN = 3
"""Times that one message is repeated."""

Scope = MutableMapping[str, Any]


class Reply(NamedTuple):
    """An answer of the SuperLink, as a whole."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Announced(NamedTuple):
    """What the driver has begun to send: to whom, and how many pieces are still to come."""

    nodes: Collection[int]
    missing: int


class WaitingNodes:
    """Questions for messages that are kept, by the nodes' numbers."""

    def __init__(
        self,
        held: float = HELD_SECONDS,
        announced: float = ANNOUNCED_SECONDS,
        confirmed: float = CONFIRMED_SECONDS,
    ) -> None:
        self.held, self.announced, self.confirmed = held, announced, confirmed
        self._news: dict[int, asyncio.Event] = {}
        self._given: dict[int, tuple[Reply, int]] = {}  # not heard of yet, and how often again
        self._coming = Announced((), 0)
        self._over = False

    async def ask(
        self,
        node: int,
        ask: Callable[[], Awaitable[Reply]],
        gone: Callable[[], Awaitable[object]],
    ) -> Reply | None:
        """The SuperLink's answer to a node's question, as soon as it has a message in it or the
        time is over; None if who asked is gone. `gone` returns when it is."""
        if (again := self._again(node)) is not None:
            return again
        news = asyncio.Event()
        if (older := self._news.get(node)) is not None:
            older.set()  # it has a new connection, and the old one is dead
        self._news[node] = news
        until = asyncio.get_running_loop().time() + self.held
        try:
            while True:
                news.clear()
                reply = await ask()
                if reply.status == 200 and reply.body:
                    self._given[node] = reply, GIVEN_AGAIN
                left = until - asyncio.get_running_loop().time()
                if reply.status != 200 or reply.body or left <= 0 or self._over:
                    return reply
                if not await _first(news.wait(), gone(), left):
                    return None
                if self._news.get(node) is not news:
                    return reply
        finally:
            if self._news.get(node) is news:
                del self._news[node]

    def _again(self, node: int) -> Reply | None:
        """What it was given, if nothing says that it has come."""
        if node not in self._given:
            return None
        reply, times = self._given[node]
        if not times:
            del self._given[node]
            return None
        self._given[node] = reply, times - 1
        return reply

    def heard(self, node: int) -> None:
        """It goes on with the message that it was given last: asks for its pieces, say."""
        self._given.pop(node, None)

    def coming(self, announced: Announced) -> None:
        """The driver has announced messages. It sends one after the other."""
        self._tell(self._coming.nodes)
        self._coming = announced
        if announced.missing:
            asyncio.get_running_loop().call_later(self.announced, self._tell, announced.nodes)
        else:
            self._tell(announced.nodes)

    def piece_came(self) -> None:
        nodes, missing = self._coming
        self._coming = Announced(nodes, missing - 1)
        if missing == 1:
            self._tell(nodes)

    def end(self) -> None:
        """Nobody waits any more: the SuperLink is being stopped."""
        self._over = True
        self._tell(list(self._news))

    def _tell(self, nodes: Collection[int]) -> None:
        for node in nodes:
            if node in self._news:
                self._news[node].set()


async def _first(news: Awaitable[object], gone: Awaitable[object], seconds: float) -> bool:
    """Wait for either, or so long; False if who asked is gone."""
    tasks = [asyncio.ensure_future(news), asyncio.ensure_future(gone)]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return tasks[1] not in done
    finally:
        for task in tasks:
            task.cancel()
