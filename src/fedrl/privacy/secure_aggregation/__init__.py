"""The mean of updates that the server never sees: what its two sides agree on, and a rehearsal.

`Terms` say how a client's numbers become words of 32 bits, and a sum of words a mean. `mean` plays
all of it in one process: clients that failed have shared keys and then dropped out.

    protocol      the scheme: masks, shares, who sends what to whom
    client        a client's side, also against a server that lies
    server        the server's side, and how it finds out liars
    messages      what the steps carry, as tensors and back
    masks, shamir, quantise, commitments     the building blocks
    identity      signed keys: who is in a sum is a member, and its keys are its own
    opened_sums   a client's memory of the sums that it helped to open
    cost          bytes and seconds

An engine whose clients are elsewhere carries the messages (`engines/flower/secure_rounds.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedrl.core.registry import missing_extra
from fedrl.privacy import Settings
from fedrl.privacy.clipping import shorten
from fedrl.privacy.noise import Normal, from_system
from fedrl.privacy.secure_aggregation import quantise

if TYPE_CHECKING:
    from fedrl.privacy.secure_aggregation.client import Client
    from fedrl.privacy.secure_aggregation.protocol import Letter
    from fedrl.privacy.secure_aggregation.server import Server


FEWEST = 3
"""Of a sum of two, each of the two could take its own update away and have the other's."""


def check_installed() -> None:
    """Say which extra to install, if what masks are made with is not here."""
    try:
        from fedrl.privacy.secure_aggregation import masks  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_extra(error, "privacy.secure", "privacy") from error


def threshold(share: float, clients: int) -> int:
    """t of n: the share, rounded up, but always more than half of them and at least `FEWEST`."""
    return max(math.ceil(share * clients - 1e-9), clients // 2 + 1, FEWEST)


def part(deviation: float, needed: int) -> float:
    """The deviation of one of t parts of a noise."""
    return deviation / math.sqrt(needed)


class Terms(NamedTuple):
    """What all clients of a sum and its server have in common: n, t, C and each one's noise."""

    asked: int
    needed: int
    bound: float
    deviation: float

    @classmethod
    def of(cls, settings: Settings, asked: int) -> Terms:
        needed = threshold(settings.threshold, asked)
        noise = part(settings.noise * settings.clip, needed)
        return cls(asked, needed, settings.clip, noise)

    @property
    def step(self) -> float:
        return quantise.step(self.bound, self.asked, self.deviation)

    def quantised(self, vector: np.ndarray, draw: Normal) -> np.ndarray:
        """What a client adds: a vector no longer than the bound, and its part of the noise."""
        noise = self.deviation * draw(len(vector)) if self.deviation else None
        return quantise.encode(vector, self.bound, self.step, noise)

    def mean(self, total: np.ndarray, added: int) -> np.ndarray:
        """Of so many clients' vectors; with noise, of all that were asked, as in `noise.py`.

        Without noise it is no longer than the bound, as a mean of vectors that keep to it is: this
        is as far as one client that lies can move it.
        """
        decoded = quantise.decode(total, self.step)
        return decoded / self.asked if self.deviation else shorten(decoded / added, self.bound)


def mean(vectors: Iterable[np.ndarray], terms: Terms, draw: Normal = from_system) -> np.ndarray:
    """The mean of vectors no longer than the bound, of clients of which some give none.

    With noise the sum is divided by all that were asked, as in `noise.py`. Raises `TooFew` if fewer
    vectors come than are needed.
    """
    coming = iter(vectors)
    first = next(coming, None)
    size = 0 if first is None else len(first)
    clients, server, letters = _keys_shared(terms, size)
    for number, vector in enumerate(itertools.chain([] if first is None else [first], coming)):
        server.add(number, clients[number].mask(letters[number], terms.quantised(vector, draw)))
    survivors = server.survivors()
    total = server.total({number: clients[number].unmask(survivors) for number in survivors})
    return terms.mean(total, len(survivors))


def _keys_shared(
    terms: Terms, size: int
) -> tuple[list[Client], Server, dict[int, dict[int, Letter]]]:
    """The first two phases, in which everybody that was asked takes part."""
    check_installed()
    from fedrl.privacy.secure_aggregation.client import Client
    from fedrl.privacy.secure_aggregation.server import Server

    clients = [Client(number, terms.needed) for number in range(terms.asked)]
    server = Server(terms.needed, size)
    known = server.collect({client.number: client.advertise() for client in clients})
    return clients, server, server.route({c.number: c.share(known) for c in clients})
