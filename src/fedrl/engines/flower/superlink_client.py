"""The driver's inbox at a SuperLink: send messages, fetch the answers, with our own polling.

Any trouble with the connection, or a SuperLink that was restarted and knows the run no more, is
`Lost`: the engine then opens a new run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import httpx
from cryptography.hazmat.primitives.asymmetric import ec

from fedrl.core.number_format import duration
from fedrl.core.serialization import Unpacker
from fedrl.core.types import UserError
from fedrl.engines.flower.adapter import driver, records
from fedrl.engines.flower.adapter.arrived_answers import ArrivedAnswer
from fedrl.engines.flower.adapter.driver import reached
from fedrl.engines.flower.adapter.records import Content
from fedrl.engines.flower.connection import Connection, Lost
from fedrl.engines.flower.driver_waiting import Reminder, said_if_slow
from fedrl.engines.flower.node_check import unreachable

HEARTBEAT_SECONDS = 10.0
"""A SuperLink gives a run up when it has heard nothing for 60 s."""
OBJECTS = 64
SMALLEST_PIECE = 2**16
"""Bytes. An answer has a few objects beside its pieces, and a few more for each."""
MANY = 32
"""Parts of a large answer. Such are fetched one after the other, each when all of it is at the
SuperLink: of those that are on their way at the same time, none takes memory here."""


class Outgoing(NamedTuple):
    node: int
    content: Content
    seconds: float  # that it may wait at the SuperLink
    unpacker: Callable[[], Unpacker] = Unpacker  # for the tensors of its answer


class Arrived(NamedTuple):
    """The answer to a message: its content, or why there is none.

    What was large has gone into `unpacker` as it came, and is not in the content.
    """

    message: str
    node: int
    content: Content | None
    error: str
    unpacker: Unpacker | None = None


@dataclass
class _Arriving:
    """An answer whose objects are being fetched: it may still be on its way to the SuperLink."""

    asked: str
    node: int
    missing: list[str]
    unpacker: Unpacker | None = None
    answer: ArrivedAnswer | None = None
    bytes: int = 0


class SuperLinkClient:
    """One run at a SuperLink, from `open` to `close`."""

    def __init__(self, connection: Connection, run: driver.Run | None = None) -> None:
        self.connection = connection
        self.bytes_received = 0
        self._started = run
        self._arriving: dict[str, _Arriving] = {}
        self._forgotten: set[str] = set()
        self._unpackers: dict[str, Callable[[], Unpacker]] = {}  # by the message that was sent
        self._keys: dict[int, bytes] = {}  # of nodes
        self._over = threading.Event()

    @property
    def _run(self) -> driver.Run:
        assert self._started is not None
        return self._started

    def open(self) -> None:
        with reached():
            self._started = driver.Run.start(self.connection)
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """Signs of life, from a thread: a round may take long. Trouble shows in the next call."""
        run, over = self._run, self._over
        while not over.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                run.heartbeat()

    def nodes(self) -> set[int]:
        with reached():
            self._keys = self._run.nodes()
        return set(self._keys)

    def key_of(self, node: int) -> ec.EllipticCurvePublicKey | None:
        """The long-term key by which the SuperLink knows it."""
        data = self._keys.get(node)
        return driver.public_key(data) if data else None

    def push(self, messages: Sequence[Outgoing]) -> list[str]:
        """The messages' ids, empty for those that the SuperLink does not take."""
        with reached():
            numbers = self._run.push([message[:3] for message in messages])
        self._unpackers |= {n: m.unpacker for n, m in zip(numbers, messages, strict=True) if n}
        return numbers

    def pull(self, messages: Collection[str], limit: int) -> list[Arrived]:
        """Answers to these that are here, of at most `limit` bytes; never waits for one.

        Not more than one large one: the next call has the next."""
        here = []
        with reached():
            self._look(set(messages))
            for number, arriving in list(self._arriving.items()):
                if arriving.asked not in messages:
                    continue
                large = len(arriving.missing) > MANY
                done = self._fetch(number, arriving, limit)
                if done is not None:
                    del self._arriving[number]
                    self._unpackers.pop(arriving.asked, None)
                    self._run.drop(number)
                    here.append(done)
                    if large:
                        break
        return here

    def _look(self, messages: set[str]) -> None:
        """Note the answers that are announced; those that nobody waits for are dropped."""
        wanted = messages - {arriving.asked for arriving in self._arriving.values()}
        if not wanted and not self._forgotten:
            return
        for answer in self._run.answers(wanted | self._forgotten):
            if answer.asked in self._forgotten:
                self._forgotten.discard(answer.asked)
                self._run.drop(answer.number)
            else:
                self._arriving[answer.number] = _Arriving(answer.asked, answer.node, answer.parts)

    def _fetch(self, number: str, arriving: _Arriving, limit: int) -> Arrived | None:
        """The answer, if all of it is here."""
        try:
            content = self._content(number, arriving, limit)
        except records.Unusable as reason:
            return Arrived(arriving.asked, arriving.node, None, str(reason))
        if content is None:
            return None
        return Arrived(arriving.asked, arriving.node, content, "", arriving.unpacker)

    def _content(self, number: str, arriving: _Arriving, limit: int) -> Content | None:
        """One object after the other: what is too large is noticed before it is all here."""
        if len(arriving.missing) > OBJECTS + limit // SMALLEST_PIECE:  # each is a request
            raise records.Unusable("its answer has too many parts")
        if arriving.answer is None:
            arriving.unpacker = self._unpackers.get(arriving.asked, Unpacker)()
            arriving.answer = ArrivedAnswer(arriving.unpacker.feed, limit)
        if len(arriving.missing) > MANY:
            last = self._run.part(arriving.missing[-1])  # what names all others is sent last
            if last is None:
                return None
            self._note(arriving, arriving.missing.pop(), last, limit)
        while arriving.missing:
            part = self._run.part(arriving.missing[0])
            if part is None:
                return None
            self._note(arriving, arriving.missing.pop(0), part, limit)
        self.bytes_received += arriving.bytes
        return arriving.answer.finish(number)

    def _note(self, arriving: _Arriving, number: str, part: bytes, limit: int) -> None:
        assert arriving.answer is not None
        arriving.bytes += len(part)
        if arriving.bytes > limit:
            raise records.too_large(limit)
        arriving.answer.take(number, part)

    def forget(self, messages: Collection[str]) -> None:
        """Answers that nobody waits for any more: when they come, the SuperLink drops them."""
        here = {n: a.asked for n, a in self._arriving.items() if a.asked in messages}
        self._forgotten |= set(messages) - set(here.values())
        for message in messages:
            self._unpackers.pop(message, None)
        for number in here:
            del self._arriving[number]
            with contextlib.suppress(Lost), reached():  # one that is gone has forgotten it
                self._run.drop(number)

    def close(self, finished: bool) -> None:
        self._over.set()
        if self._started is not None:
            self._started.finish(finished)


def wait_for(
    connection: Connection, seconds: float, warn: Callable[[str], None] = print
) -> SuperLinkClient:
    """A run at the SuperLink, as soon as it answers; `Lost` after so many seconds.

    What keeps it from that is said in words, by `warn`."""
    until = time.monotonic() + seconds
    reminder = Reminder()
    while True:
        link = SuperLinkClient(connection)
        try:
            with said_if_slow(f"waiting for the SuperLink at {connection.address}", warn):
                link.open()
            return link
        except Lost as lost:
            link.close(finished=False)
            if lost.status in (401, 403):
                raise UserError(
                    f"the SuperLink at {connection.address} refuses this driver: run it on the "
                    "SuperLink's machine or name its address (fedrl flower link --driver), with "
                    "the SuperLink's own file secret"
                ) from lost
            if "certificate" in str(lost.__cause__).lower():
                raise UserError(
                    f"the SuperLink at {connection.address} has a certificate that "
                    f"{connection.ca or 'a plain-text connection'} does not vouch for"
                ) from lost
            why = unreachable(connection.address, connection.ca) or f"{lost}: see its log"
            if time.monotonic() >= until:
                raise Lost(why, lost.status) from lost
            if reminder.due(why):
                left = duration(max(1, round(until - time.monotonic())))
                warn(f"waiting for the SuperLink, {left} at most (flower.patience): {why}")
            time.sleep(1.0)
