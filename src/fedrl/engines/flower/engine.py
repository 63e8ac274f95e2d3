"""The engine: jobs of the round loop to nodes, their answers back in the order of the jobs.

Checkpoints, retries and the quorum belong to `federation.py`. Here a client that does not answer in
time, whose node is gone or whose answer is not what it should be, is a Failure and holds nobody up.
If the SuperLink goes away, its run is submitted again as soon as it is back and the jobs that had
no answer yet are sent again, with new nonces and new clocks. Where updates are added up secretly
(`sums.py`), every step of that is such an exchange of questions and answers.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedrl.config.flower import Settings
from fedrl.core import serialization
from fedrl.core.types import Algorithm, Failure, Job, Result, Spec, Tensors, UserError
from fedrl.core.update_refusal import one_line, ranges
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.client_nodes import BUSY_SECONDS, ClientNodes
from fedrl.engines.flower.connection import Connection, Lost
from fedrl.engines.flower.secure_rounds import Question, SecureSum
from fedrl.engines.flower.superlink_client import Arrived, Outgoing, SuperLinkClient, wait_for
from fedrl.privacy import clipping
from fedrl.privacy.secure_aggregation import Terms, identity
from fedrl.privacy.secure_aggregation import messages as secure_messages

KEPT = "kept"
"""Key of a client's state where the server has only its tag."""
POLL_SECONDS = 0.2
FRUITLESS = 20
"""Times that a SuperLink may be lost without a single answer in between."""
NOT_TWICE = "the SuperLink went away, and an update with noise of its own is not asked for twice"
LONGEST_SECONDS = 7 * 24 * 3600.0
SPARE_SECONDS = 60.0
"""That a question lasts beyond its deadline, because a SuperLink gives no answer out whose question
is past its time: the driver says who is late. A buffered round has `BUSY_SECONDS` to spare."""
ROOM = 2**20
"""Bytes that an answer may have beside its declared tensors."""


class _Sent(NamedTuple):
    turn: int
    client: int
    node: int
    nonce: str
    expires: float
    declared: Mapping[str, Spec] | None


@dataclass(frozen=True)
class Recipe:
    """What nodes must know of a run: its name, its configuration, how many states to keep."""

    run: str
    text: str
    keep: int


class Opens(Protocol):
    def __call__(self, connection: Connection, seconds: float) -> SuperLinkClient: ...


class FlowerEngine:
    def __init__(
        self,
        algorithm: Algorithm,
        recipe: Recipe,
        connection: Connection,
        settings: Settings,
        warn: Callable[[str], None] = print,
        opens: Opens = wait_for,
        terms: Terms | None = None,
        once: bool = False,
    ) -> None:
        self.algorithm = algorithm
        self.recipe = recipe
        self.connection = connection
        self.settings = settings
        self.warn = warn
        self.opens = opens
        self.terms = terms  # of secure sums; none where updates travel as they are
        self.once = once  # whether no job is sent a second time: each update shows new noise
        self.bytes_sent = 0  # of broadcasts and headings, each once for every client
        self.tries = 0  # to send one
        self._link: SuperLinkClient | None = None
        self._fruitless = 0
        self._roster = ClientNodes(warn, connection.registered())
        self._begun: dict[int, Job] = {}  # by client, until its outcome is here
        self._sent: dict[str, _Sent] = {}  # of those, what is at a node
        self._until: dict[int, float] = {}  # of those, how long to wait for their nodes
        self._done: deque[tuple[int, Result | Failure]] = deque()

    @property
    def bytes_received(self) -> int:
        """Of answers, headings included."""
        return 0 if self._link is None else self._link.bytes_received

    @property
    def owners(self) -> dict[int, int]:
        """Node of each client that is connected."""
        return self._roster.owners

    def __enter__(self) -> FlowerEngine:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._link is not None:
            self._link.close(finished=kind is None)

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
        """Outcomes in the order of the jobs; early ones of later jobs wait for their turn."""
        if self.terms is not None:
            yield from self._summed(jobs, deadline, self.terms)
            return
        questions = [self._question(job, deadline) for job in jobs]
        finished: dict[int, Result | Failure] = {}
        before = self.tries
        limit = max(self._limit(job.broadcast) for job in jobs)
        turn = 0
        while turn < len(jobs):
            left = {i: questions[i] for i in range(turn, len(jobs)) if i not in finished}
            try:
                for i, found in self.ask(left, deadline, limit):
                    finished[i] = found
                    while turn in finished:
                        yield finished.pop(turn)
                        turn += 1
            except Lost as lost:
                self._reopen(lost)
                if self.once and self.tries > before:
                    for i, job in enumerate(jobs[turn:], turn):
                        yield finished.get(i) or Failure(job.client, NOT_TWICE)
                    return

    def _summed(self, jobs: Sequence[Job], deadline: float, terms: Terms) -> list[Result | Failure]:
        """The mean as the update of everybody in the sum; from the start if the SuperLink goes."""
        broadcast = jobs[0].broadcast
        if self.settings.half:  # what clients take as the values that they differ from
            broadcast = serialization.unpack(serialization.pack(broadcast, half=True))
        form = clipping.layout(self.algorithm, broadcast)
        while True:
            exchange = messages.nonce()
            first = {job.client: self._question(job, deadline, exchange) for job in jobs}
            try:
                return SecureSum(
                    exchange,
                    terms,
                    form,
                    deadline,
                    self.ask,
                    self.warn,
                    ranges(self.algorithm),
                    partial(self._doubts, exchange, identity.Signers(), jobs[0]),
                ).run(first)
            except Lost as lost:
                self._reopen(lost)

    def _doubts(
        self,
        name: str,
        signers: identity.Signers,
        asked: Job,
        client: int,
        said: secure_messages.Signed,
        broadcast: str,
    ) -> str:
        """One whose signature its peers would refuse must fail alone, and not make all give up."""
        node = self.owners.get(client)
        key = None if node is None or self.connection.insecure else self._open().key_of(node)
        if key is None:
            return ""
        terms = secure_messages.sendable(self.terms)
        job = secure_messages.digest(self.recipe.text, broadcast, terms, asked.round, asked.attempt)
        about = identity.about_keys(name, client, said.keys, job, said.history)
        return signers.doubt(client, key, about, said.signature)

    def _question(self, job: Job, deadline: float, exchange: str = "") -> Question:
        def heading(nonce: str, digest: str) -> messages.Job:
            return messages.Job(
                nonce,
                job.client,
                job.seed,
                self.recipe.run,
                _tag(job.state),
                self.recipe.keep,
                deadline,
                self.recipe.text,
                digest,
                exchange,
                secure_messages.sendable(self.terms),
                job.round,
                job.attempt,
            )

        return Question(job.client, job.broadcast, heading)

    def begin(self, jobs: Sequence[Job]) -> None:
        """More work, not more than one job of a client; `take` sends it and waits."""
        self._begun |= {job.client: job for job in jobs}
        self._roster.begin()

    def take(self, deadline: float = 0.0) -> tuple[int, Result | Failure]:
        """The next outcome of what has begun, in whatever order they come, and whose it is."""
        while True:
            try:
                # First, also if outcomes are waiting: nobody should be idle meanwhile.
                self._note(self._dispatch(deadline))
                if self._done:
                    return self._done.popleft()
                limit = max(self._limit(job.broadcast) for job in self._begun.values())
                self._note(self._collect(deadline, self._sent, limit))
            except Lost as lost:
                self._reopen(lost)
                self._sent.clear()
                self._until.clear()

    def _dispatch(self, deadline: float) -> dict[int, Result | Failure]:
        """Send begun jobs to nodes that are here; nobody's answer waits for nodes that are not."""
        away = {about.client for about in self._sent.values()}
        new = {client: job for client, job in self._begun.items() if client not in away}
        if not new:
            return {}
        for client in new:
            self._until.setdefault(client, time.monotonic() + self.settings.wait)
        awaited = self._roster.awaited(self._open(), {c: self._until[c] for c in new})
        ready = {c: self._question(j, deadline) for c, j in new.items() if c not in awaited}
        return self._send(ready, deadline, BUSY_SECONDS, self._sent)

    def _note(self, found: Mapping[int, Result | Failure]) -> None:
        for client in found:
            del self._begun[client]
            self._until.pop(client, None)
        self._done.extend(found.items())

    def ask(
        self, questions: Mapping[int, Question], deadline: float, limit: int
    ) -> Iterator[tuple[int, Result | Failure]]:
        """Outcomes as they come, by the questions' keys; `Lost` if the SuperLink goes away."""
        sent: dict[str, _Sent] = {}
        try:
            self._meet({question.client for question in questions.values()})
            yield from self._send(questions, deadline, SPARE_SECONDS, sent).items()
            while sent:
                yield from self._collect(deadline, sent, limit).items()
        finally:
            if self._link is not None:
                self._link.forget(sent)

    def _send(
        self,
        questions: Mapping[int, Question],
        deadline: float,
        spare: float,
        sent: dict[str, _Sent],
    ) -> dict[int, Result | Failure]:
        """Send these questions; the failures of those whose client has no node."""
        link = self._open()
        lasts = deadline + spare if deadline else LONGEST_SECONDS
        failures: dict[int, Result | Failure] = {}
        bodies: dict[int, tuple[Any, str, int, Mapping[str, Spec] | None]] = {}
        for i, (client, beside, heading) in questions.items():
            node = self.owners.get(client)
            if node is None:
                failures[i] = Failure(client, "no node of this client is connected")
                continue
            if id(beside) not in bodies:
                bodies[id(beside)] = self._body(beside)
            body, digest, size, declared = bodies[id(beside)]
            nonce = messages.nonce()
            text = messages.write(heading(nonce, digest))
            content = records.content(text, body)
            self.tries += 1  # before: it may arrive although nobody hears that it did
            # One by one: a request to the SuperLink names every object of all its messages.
            (number,) = link.push([Outgoing(node, content, lasts)])
            if not number:
                failures[i] = Failure(client, "the SuperLink did not take its job")
                continue
            expires = time.monotonic() + deadline if deadline else math.inf
            sent[number] = _Sent(i, client, node, nonce, expires, declared)
            self.bytes_sent += size + len(text)
        return failures

    def _body(self, beside: Tensors) -> tuple[Any, str, int, Mapping[str, Spec] | None]:
        """Pieces, their checksum and size, and what may come back; `steps` knows that of a sum."""
        data = serialization.pack(beside, self.settings.half)
        pieces = serialization.cut(data, int(self.settings.piece_mb * 1e6))
        declared = None if self.terms is not None else self.algorithm.declare(beside)
        return records.body(pieces), serialization.checksum(pieces), len(data), declared

    def _collect(
        self, deadline: float, sent: dict[str, _Sent], limit: int
    ) -> dict[int, Result | Failure]:
        """What is here, however late one looks; else give up what is late, or wait for a moment."""
        outcomes: dict[int, Result | Failure] = {}
        now = time.monotonic()  # before the look: what came by then counts
        for answer in self._open().pull(list(sent), limit):
            if (about := sent.pop(answer.message, None)) is not None:
                outcomes[about.turn] = outcome(answer, about)
        if outcomes:
            self._fruitless = 0
            return outcomes
        late = {number: about for number, about in sent.items() if now >= about.expires}
        if not late:
            time.sleep(POLL_SECONDS)
        self._open().forget(late)
        for number, about in late.items():
            del sent[number]
            reason = f"no answer within the deadline of {deadline:g} s"
            outcomes[about.turn] = Failure(about.client, reason)
        return outcomes

    def _limit(self, broadcast: Tensors) -> int:
        """Bytes that an answer may have: what the method declares, and some room."""
        specs = self.algorithm.declare(broadcast).values()
        declared = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in specs)
        return declared + ROOM + 512 * len(specs)

    # Who is there --------------------------------------------------------------------------------

    def _open(self) -> SuperLinkClient:
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
        self._fruitless += 1
        if self._fruitless > FRUITLESS:
            raise UserError(
                f"{lost}, more than {FRUITLESS} times without an answer in between: see its log"
            )
        self.warn(f"{lost}; waiting for it, then the jobs without an answer are sent again")
        if self._link is not None:
            self._link.close(finished=False)
        self._link = None
        self._roster = ClientNodes(self.warn, self._roster.registered, self._roster.met)

    def _meet(self, wanted: set[int]) -> None:
        """Find the nodes of these clients; wait for those that are missing, once per absence."""
        until = dict.fromkeys(wanted, time.monotonic() + self.settings.wait)
        self._roster.begin()
        while self._roster.awaited(self._open(), until):
            time.sleep(POLL_SECONDS)


def _tag(state: Tensors | None) -> str:
    """Where a client's state lies on its node's disk."""
    if state is None:
        return ""
    if set(state) != {KEPT}:
        raise UserError("this run's clients have their states in its checkpoint, not on nodes")
    return str(state[KEPT])


def outcome(answer: Arrived, about: _Sent) -> Result | Failure:
    """What a node's answer to a question comes to; never an exception, whatever the node sent."""
    client = about.client
    if answer.content is None:
        return Failure(client, answer.error)
    try:
        heading, pieces = records.opened(answer.content)
        told: messages.Answer = messages.read(heading, messages.Answer)
        if told.nonce != about.nonce or answer.node != about.node or told.client != client:
            return Failure(client, "its answer is to another question: an old one, sent again?")
        if told.reason:
            return Failure(
                client, one_line(told.reason) or "no update, and no reason that can be read"
            )
        update = serialization.unpack(serialization.join(pieces, told.digest), about.declared)
    except serialization.Undeclared as error:
        return Failure(client, one_line(str(error)))
    except serialization.Damaged as error:
        return Failure(client, f"its answer is malformed: {error}")
    state = {KEPT: about.nonce} if told.kept else None
    return Result(client, update, told.weight, state, told.metrics)
