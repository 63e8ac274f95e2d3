"""Connections to a SuperLink: how many there may be, and how long one may say nothing.

Counted from `accept` to `close`, so those count too that never finish their TLS handshake. Beyond a
limit a connection is closed at once; a node tries again. A peer is an address: nodes behind one
address share its limit. A handshake costs milliseconds, and whoever is refused may come again at
once: an address that keeps coming is let in only so often, but for the drivers' machines.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from fedrl.core.types import UserError
from fedrl.engines.flower.owner_log import Seldom

CONNECTIONS = 512
CONNECTIONS_EACH = 256
"""Of one address. A node has about two, and all nodes of a machine share its address."""
ARRIVALS, ARRIVALS_A_SECOND = 256, 32.0
"""Connections of one address: at once after a pause, and for as long as it goes on. A node without
a run makes one in 10 s."""
REMEMBERED = 4096
"""Addresses that have come lately."""
HEAD_SECONDS = 20.0
"""For the head of a request, from its first byte or the connection's beginning."""
BACKLOG = 256
Address = tuple[str, int] | tuple[str, int, int, int]
"""Of a peer, IPv4 or IPv6."""


class Doorkeeper:
    """Counts who is connected, and how often somebody comes who is not `known`."""

    def __init__(
        self,
        most: int = CONNECTIONS,
        each: int = CONNECTIONS_EACH,
        known: Collection[str] = (),
    ) -> None:
        self.most, self.each, self.known = most, each, frozenset(known)
        self.inside: Counter[str] = Counter()
        self._came: dict[str, tuple[float, float]] = {}  # how much is left of `ARRIVALS`, and when

    def enter(self, peer: str) -> bool:
        if self.inside.total() >= self.most or self.inside[peer] >= self.each:
            return False
        if peer not in self.known and not self._may_come(peer):
            return False
        self.inside[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        self.inside[peer] -= 1
        self.inside += Counter()  # forgets those at 0

    def _may_come(self, peer: str) -> bool:
        now = time.monotonic()
        left, when = self._came.pop(peer, (float(ARRIVALS), now))
        left = min(left + (now - when) * ARRIVALS_A_SECOND, float(ARRIVALS))
        if len(self._came) >= REMEMBERED:
            del self._came[next(iter(self._came))]  # who has not come for longest
        admitted = left >= 1
        self._came[peer] = left - admitted, now
        return admitted


class Visitor(socket.socket):
    """A connection that is counted until it is closed."""

    doorkeeper: Doorkeeper | None = None
    peer = ""

    def close(self) -> None:
        doorkeeper, self.doorkeeper = self.doorkeeper, None
        if doorkeeper is not None:
            doorkeeper.leave(self.peer)
        super().close()


class Listener(socket.socket):
    """A listening socket that takes no more visitors than its doorkeeper lets in."""

    doorkeeper: Doorkeeper

    def accept(self) -> tuple[Visitor, Address]:
        accepted, address = super().accept()
        visitor = Visitor(self.family, self.type, self.proto, fileno=accepted.detach())
        if not self.doorkeeper.enter(address[0]):
            visitor.close()
            # What the event loop takes for a visitor that went away by itself.
            raise ConnectionAbortedError("too many connections")
        visitor.doorkeeper, visitor.peer = self.doorkeeper, address[0]
        return visitor, address


def listen(host: str, port: int, doorkeeper: Doorkeeper) -> Sequence[Listener]:
    """Sockets on all addresses of this name, not yet accepting."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[Listener] = []
    try:
        for family, kind, proto, _, address in dict.fromkeys(addresses):
            listener = Listener(family, kind, proto)
            listeners.append(listener)
            listener.doorkeeper = doorkeeper
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        for listener in listeners:
            listener.close()
        why = getattr(error, "strerror", None) or error
        raise UserError(f"the SuperLink cannot listen on {host} port {port}: {why}") from error
    return listeners


def require_free(host: str, port: int) -> None:
    """`UserError` if a SuperLink could not listen there."""
    for listener in listen(host, port, Doorkeeper()):
        listener.close()


def limit_warnings(logger: logging.Logger) -> None:
    """uvicorn has a line for every request that is none: whoever sends many would fill a disk."""
    seldom = Seldom()
    logger.addFilter(lambda record: record.levelno < logging.WARNING or seldom.admits())


class Impatient(H11Protocol):
    """HTTP/1.1 that ends connections which do not get to the point.

    uvicorn waits for ever for the rest of a request's head, and for the rest of the body of one
    that has had its answer. Its other parser has no limit on the size of a head, h11 has one.
    """

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """The clock runs while no request is being answered; data does not set it back."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy or self.transport.is_closing():
            self._stop_watch()
        elif self._overdue is None:
            self._overdue = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_watch(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
