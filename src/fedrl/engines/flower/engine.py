"""The engine: jobs of the round loop to nodes, their answers back in the order of the jobs.

Checkpoints, retries and the quorum belong to `federation.py`. Here a client that does not answer in
time, whose node is gone or whose answer is not what it should be, is a Failure and holds nobody up.
If the SuperLink goes away, its run is submitted again as soon as it is back and the jobs that had
no answer yet are sent again, with new nonces and new clocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

import fedrl
from fedrl.engines.flower import framing, messages, protocol
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.link import Arrived, Link, Lost, Outgoing, wait_for
from fedrl.engines.flower.settings import Settings
from fedrl.types import Algorithm, Failure, Job, Result, Tensors, UserError

KEPT = "kept"
"""Key of a client's state where the server has only its tag."""
POLL_SECONDS = 0.2
ANSWER_SECONDS = 30.0
"""For a node that came in the middle of a run to say who it is."""
LONGEST_SECONDS = 7 * 24 * 3600.0
ROOM = 2**20
"""Bytes that an answer may have beside its declared tensors."""


class _Sent(NamedTuple):
    turn: int
    node: int
    nonce: str
    expires: float


@dataclass(frozen=True)
class Recipe:
    """What nodes must know of a run: its name, its configuration, how many states to keep."""

    run: str
    text: str
    keep: int


class Opens(Protocol):
    def __call__(self, connection: Connection, seconds: float) -> Link: ...


class Flower:
    def __init__(
        self,
        algorithm: Algorithm,
        recipe: Recipe,
        connection: Connection,
        settings: Settings,
        warn: Callable[[str], None] = print,
        opens: Opens = wait_for,
    ) -> None:
        self.algorithm = algorithm
        self.recipe = recipe
        self.connection = connection
        self.settings = settings
        self.warn = warn
        self.opens = opens
        self.owners: dict[int, int] = {}  # client → node
        self.bytes_sent = 0  # of broadcasts and headings, each once for every client
        self._known: set[int] = set()  # nodes that have said who they are
        self._missed: set[int] = set()  # clients that were waited for in vain
        self._link: Link | None = None

    def __enter__(self) -> Flower:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._link is not None:
            self._link.close(finished=kind is None)

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
        """Outcomes in the order of the jobs; early ones of later jobs wait for their turn."""
        finished: dict[int, Result | Failure] = {}
        sent: dict[str, _Sent] = {}
        limit = max(self._limit(job.broadcast) for job in jobs)
        turn = 0
        try:
            while turn < len(jobs):
                try:
                    under_way = {s.turn for s in sent.values()} | set(finished) | set(range(turn))
                    left = [i for i in range(len(jobs)) if i not in under_way]
                    if left:
                        finished |= self._send(jobs, left, deadline, sent)
                    finished |= self._collect(jobs, deadline, sent, limit)
                except Lost as lost:
                    self._reopen(lost)
                    sent.clear()
                while turn in finished:
                    yield finished.pop(turn)
                    turn += 1
        finally:
            if self._link is not None:
                self._link.forget(sent)

    def _send(
        self, jobs: Sequence[Job], left: list[int], deadline: float, sent: dict[str, _Sent]
    ) -> dict[int, Result | Failure]:
        """Send these jobs; the failures of those whose client has no node."""
        link = self._open()
        self._meet({jobs[i].client for i in left})
        failures: dict[int, Result | Failure] = {}
        bodies: dict[int, tuple[Any, str, int]] = {}
        for i in left:
            job = jobs[i]
            node = self.owners.get(job.client)
            if node is None:
                failures[i] = Failure(job.client, "no node of this client is connected")
                continue
            if id(job.broadcast) not in bodies:
                bodies[id(job.broadcast)] = self._body(job.broadcast)
            body, digest, size = bodies[id(job.broadcast)]
            nonce = protocol.nonce()
            heading = protocol.write(
                protocol.Job(
                    nonce,
                    job.client,
                    job.seed,
                    self.recipe.run,
                    _tag(job.state),
                    self.recipe.keep,
                    deadline,
                    self.recipe.text,
                    digest,
                )
            )
            content = messages.content(heading, body)
            out = Outgoing(node, content, deadline or LONGEST_SECONDS)
            # One by one: a request to the SuperLink names every object of all its messages.
            (number,) = link.push([out])
            if not number:
                failures[i] = Failure(job.client, "the SuperLink did not take its job")
                continue
            expires = time.monotonic() + deadline if deadline else math.inf
            sent[number] = _Sent(i, node, nonce, expires)
            self.bytes_sent += size + len(heading)
        return failures

    def _body(self, broadcast: Tensors) -> tuple[Any, str, int]:
        data = framing.pack(broadcast, self.settings.half)
        pieces = framing.cut(data, int(self.settings.piece_mb * 1e6))
        return messages.body(pieces), framing.checksum(pieces), len(data)

    def _collect(
        self, jobs: Sequence[Job], deadline: float, sent: dict[str, _Sent], limit: int
    ) -> dict[int, Result | Failure]:
        """Wait for a moment, then take what is here and give up what is late."""
        outcomes: dict[int, Result | Failure] = {}
        arrived = self._open().pull(list(sent), limit)
        if not arrived:
            time.sleep(POLL_SECONDS)
        for answer in arrived:
            if (about := sent.pop(answer.message, None)) is not None:
                outcomes[about.turn] = outcome(answer, about, jobs[about.turn])
        now = time.monotonic()
        late = {number: about for number, about in sent.items() if now >= about.expires}
        self._open().forget(late)
        for number, about in late.items():
            del sent[number]
            reason = f"no answer within the deadline of {deadline:g} s"
            outcomes[about.turn] = Failure(jobs[about.turn].client, reason)
        return outcomes

    def _limit(self, broadcast: Tensors) -> int:
        """Bytes that an answer may have: what the method declares, and some room."""
        specs = self.algorithm.declare(broadcast).values()
        declared = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in specs)
        return declared + ROOM + 512 * len(specs)

    # Who is there --------------------------------------------------------------------------------

    def _open(self) -> Link:
        if self._link is None:
            try:
                self._link = self.opens(self.connection, self.settings.patience)
            except Lost as lost:
                raise UserError(
                    f"{lost}: nothing at {self.connection.address} for "
                    f"{self.settings.patience:g} s (flower.patience)"
                ) from lost
        return self._link

    def _reopen(self, lost: Lost) -> None:
        """A SuperLink that was restarted knows neither the run nor, perhaps, the nodes."""
        self.warn(f"{lost}; waiting for it, then the jobs without an answer are sent again")
        if self._link is not None:
            self._link.close(finished=False)
        self._link = None
        self.owners, self._known, self._missed = {}, set(), set()

    def _meet(self, wanted: set[int]) -> None:
        """Find the nodes of these clients; wait for those that are missing, once per absence."""
        link = self._open()
        asked: dict[str, tuple[int, str]] = {}
        until = time.monotonic() + self.settings.wait
        while True:
            online = link.nodes()
            self.owners = {c: node for c, node in self.owners.items() if node in online}
            self._known &= online
            waiting = {node for node, _ in asked.values()}
            questions = [(node, protocol.nonce()) for node in online - self._known - waiting]
            for node, nonce in questions:
                heading = protocol.write(protocol.Who(nonce))
                (number,) = link.push([Outgoing(node, messages.content(heading), ANSWER_SECONDS)])
                asked[number] = node, nonce
            for answer in link.pull(list(asked), ROOM):
                node, nonce = asked.pop(answer.message)
                self._introduce(answer, node, nonce)
            missing = wanted - set(self.owners)
            if not missing:
                self._missed -= wanted
                return
            if time.monotonic() >= until or (missing <= self._missed and not asked):
                self._missed |= missing
                link.forget(asked)
                return
            time.sleep(POLL_SECONDS)

    def _introduce(self, answer: Arrived, node: int, nonce: str) -> None:
        self._known.add(node)
        try:
            if answer.content is None:
                raise framing.Damaged(answer.error)
            name: protocol.Name = protocol.read(messages.opened(answer.content)[0], protocol.Name)
            if name.nonce != nonce or answer.node != node:
                raise framing.Damaged("an answer to another question")
        except framing.Damaged as error:
            self.warn(f"node {node} is left out: {error}")
            return
        if name.version != fedrl.__version__:
            self.warn(
                f"node {node} (client {name.client}) is left out: it runs fedrl {name.version}, "
                f"the driver {fedrl.__version__}"
            )
        elif (other := self.owners.get(name.client)) is not None:
            raise UserError(
                f"two nodes, {other} and {node}, say that they are client {name.client}: give "
                "every node its own number (fedrl flower node --client N)"
            )
        else:
            self.owners[name.client] = node


def _tag(state: Tensors | None) -> str:
    """Where a client's state lies on its node's disk."""
    if state is None:
        return ""
    if set(state) != {KEPT}:
        raise UserError("this run's clients have their states in its checkpoint, not on nodes")
    return str(state[KEPT])


def outcome(answer: Arrived, about: _Sent, job: Job) -> Result | Failure:
    """What a node's answer to a job comes to; never an exception, whatever the node sent."""
    if answer.content is None:
        return Failure(job.client, answer.error)
    try:
        heading, pieces = messages.opened(answer.content)
        told: protocol.Answer = protocol.read(heading, protocol.Answer)
        if told.nonce != about.nonce or answer.node != about.node or told.client != job.client:
            return Failure(job.client, "its answer is to another question: an old one, sent again?")
        if told.reason:
            return Failure(job.client, " ".join(told.reason.split())[:300])
        update = framing.unpack(framing.join(pieces, told.digest))
    except framing.Damaged as error:
        return Failure(job.client, f"its answer is malformed: {error}")
    state = {KEPT: about.nonce} if told.kept else None
    return Result(job.client, update, told.weight, state, told.metrics)
