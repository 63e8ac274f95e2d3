"""What secure aggregation costs: bytes and seconds of one client, seconds of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np

from fedrl.privacy.secure_aggregation import quantise, threshold
from fedrl.privacy.secure_aggregation.client import Client
from fedrl.privacy.secure_aggregation.server import Server

Found = TypeVar("Found")


class Cost(NamedTuple):
    """One sum: bytes and seconds of a client, seconds of the server. Plain are 4 bytes a number."""

    up: int
    down: int
    client_seconds: float
    server_seconds: float


def cost(clients: int, size: int, dropped: int = 0, share: float = 0.66) -> Cost:
    """Play one sum of `size` numbers; the first `dropped` clients share keys and send nothing."""
    seconds = {"client": 0.0, "server": 0.0}

    def timed(who: str, work: Callable[[], Found], parts: int = 1) -> Found:
        start = time.perf_counter()
        made = work()
        seconds[who] += (time.perf_counter() - start) / parts
        return made

    needed = threshold(share, clients)
    vector = np.zeros(size, quantise.WORD)
    server = Server(needed, size)
    everybody = timed("client", lambda: [Client(n, needed) for n in range(clients)], clients)
    keys = timed("client", lambda: {c.number: c.advertise() for c in everybody}, clients)
    known = timed("server", lambda: server.collect(keys))
    sent = timed("client", lambda: {c.number: c.share(known) for c in everybody}, clients)
    letters = timed("server", lambda: server.route(sent))
    left = everybody[dropped:]
    masked = timed("client", lambda: [c.mask(letters[c.number], vector) for c in left], len(left))

    def receive() -> None:
        for client, hidden in zip(left, masked):
            server.add(client.number, hidden)

    timed("server", receive)
    survivors = server.survivors()
    answers = timed("client", lambda: {c.number: c.unmask(survivors) for c in left}, len(left))
    timed("server", lambda: server.total(answers))

    last = clients - 1
    answer = answers[last]
    dealt = sent[last]
    up = _bytes(keys[last]) + _bytes(dealt.letters.values()) + masked[-1].nbytes
    up += _bytes(dealt.commitments.values()) + len(dealt.seed)
    up += _bytes(answer.seeds.values()) + _bytes(answer.keys.values())
    down = sum(_bytes(pair) for pair in (*known.values(), *letters[last].values()))
    return Cost(up, down, seconds["client"], seconds["server"])


def _bytes(messages: Iterable[bytes]) -> int:
    return sum(len(message) for message in messages)
