"""Questions to nodes and their answers: sent to who is connected, collected until they are late.

A client that does not answer in time, whose node is gone or whose answer is not what it should be,
is a Failure and holds nobody up. `Lost` if the SuperLink goes away: who asked then reopens it and
asks again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from fedrl.config.flower import Settings
from fedrl.core import serialization
from fedrl.core.serialization import Unpacker
from fedrl.core.types import Failure, Result, Spec, Tensors, UserError
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.client_nodes import ClientNodes
from fedrl.engines.flower.connection import Connection, Lost
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.superlink_client import Arrived, Outgoing, SuperLinkClient

KEPT = "kept"
"""Key of a client's state where the server has only its tag."""
POLL_SECONDS, FIRST_POLL_SECONDS = 0.2, 0.05
"""Between two looks for answers: a tenth of the time since the last one came, within these."""
FRUITLESS = 20
"""Times that a SuperLink may be lost without a single answer in between."""
LONGEST_SECONDS = 7 * 24 * 3600.0
SPARE_SECONDS = 60.0
"""That a question lasts beyond its deadline, because a SuperLink gives no answer out whose question
is past its time: the driver says who is late."""

Outcome = Result | Failure


class Question(NamedTuple):
    """For one client: what travels beside the heading, which is complete with nonce and digest.

    `declared` is what an answer may hold, unless whoever asks looks for himself.
    """

    client: int
    beside: Tensors
    heading: Callable[[str, str], messages.Asked]
    declared: Mapping[str, Spec] | None = None


class Sent(NamedTuple):
    """A question that is at a node, by which key it was asked, and until when an answer counts."""

    key: int
    client: int
    node: int
    nonce: str
    expires: float
    declared: Mapping[str, Spec] | None


class Opens(Protocol):
    def __call__(
        self, connection: Connection, seconds: float, warn: Callable[[str], None]
    ) -> SuperLinkClient: ...


class NodeCalls:
    """The driver's calls to the nodes of one SuperLink."""

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        warn: Callable[[str], None],
        opens: Opens,
        audit: CoordinatorAudit | None = None,
    ) -> None:
        self.connection, self.settings = connection, settings
        self.audit = audit or CoordinatorAudit(None)
        self.warn, self.opens = warn, opens
        self.bytes_sent = 0  # of broadcasts and headings, each once for every client
        self.tries = 0  # to send one
        self.nodes = ClientNodes(warn, connection.registered(), audit=self.audit)
        self._link: SuperLinkClient | None = None
        self._fruitless = 0
        self._quiet_since = 0.0

    @property
    def bytes_received(self) -> int:
        """Of answers, headings included."""
        return 0 if self._link is None else self._link.bytes_received

    def key_of(self, client: int) -> ec.EllipticCurvePublicKey | None:
        """By which the SuperLink knows a client's node; None where nodes have none."""
        node = self.nodes.owners.get(client)
        return None if node is None or self.connection.insecure else self.link().key_of(node)

    def has_moved(self, outcome: Outcome) -> bool:
        """Whether its node went away while its client changes keys: it comes back with the other
        one, and the job may have come to it too late."""
        known = self.nodes.registered
        gone = isinstance(outcome, Failure) and outcome.reason == records.NODE_GONE
        return gone and known is not None and known.renewing(outcome.client)

    def ask(
        self, questions: Mapping[int, Question], deadline: float, limit: int
    ) -> Iterator[tuple[int, Outcome]]:
        """Outcomes as they come, by the questions' keys; `Lost` if the SuperLink goes away."""
        sent: dict[str, Sent] = {}
        try:
            self._meet({question.client for question in questions.values()})
            yield from self.send(questions, deadline, SPARE_SECONDS, sent).items()
            while sent:
                yield from self.collect(deadline, sent, limit).items()
        finally:
            if self._link is not None:
                self._link.forget(sent)

    def send(
        self,
        questions: Mapping[int, Question],
        deadline: float,
        spare: float,
        sent: dict[str, Sent],
    ) -> dict[int, Outcome]:
        """Send these questions; the failures of those whose client has no node."""
        link = self.link()
        self._quiet_since = time.monotonic()
        lasts = deadline + spare if deadline else LONGEST_SECONDS
        failures: dict[int, Outcome] = {}
        bodies: dict[int, records.Sealed] = {}
        for key, (client, beside, heading, declared) in questions.items():
            node = self.nodes.owners.get(client)
            if node is None:
                failures[key] = Failure(client, "no node of this client is connected")
                continue
            if id(beside) not in bodies:
                bodies[id(beside)] = self._body(beside)
            body = bodies[id(beside)]
            nonce = messages.nonce()
            text = messages.to_json(heading(nonce, body.digest))
            self.tries += 1  # before: it may arrive although nobody hears that it did
            # One by one: a request to the SuperLink names every object of all its messages.
            content = records.content(text, body.body)
            (number,) = link.push([Outgoing(node, content, lasts, partial(Unpacker, declared))])
            if not number:
                failures[key] = Failure(client, "the SuperLink did not take its job")
                continue
            expires = time.monotonic() + deadline if deadline else math.inf
            sent[number] = Sent(key, client, node, nonce, expires, declared)
            self.bytes_sent += body.size + len(text)
        return failures

    def _body(self, beside: Tensors) -> records.Sealed:
        packed = serialization.Packed(beside, self.settings.down)
        return records.sealed(packed, int(self.settings.piece_mb * 1e6))

    def collect(self, deadline: float, sent: dict[str, Sent], limit: int) -> dict[int, Outcome]:
        """What is here, however late one looks; else give up what is late, or wait for a moment."""
        outcomes: dict[int, Outcome] = {}
        now = time.monotonic()  # before the look: what came by then counts
        for answer in self.link().pull(list(sent), limit):
            if (question := sent.pop(answer.message, None)) is not None:
                outcomes[question.key] = outcome(answer, question)
        if outcomes:
            self._fruitless, self._quiet_since = 0, now
            return outcomes
        late = {number: question for number, question in sent.items() if now >= question.expires}
        if not late:
            time.sleep(min(max((now - self._quiet_since) / 10, FIRST_POLL_SECONDS), POLL_SECONDS))
        self.link().forget(late)
        for number, question in late.items():
            del sent[number]
            reason = f"no answer within the deadline of {deadline:g} s"
            outcomes[question.key] = Failure(question.client, reason)
        return outcomes

    def _meet(self, wanted: set[int]) -> None:
        """Find the nodes of these clients; wait for those that are missing, once per absence.

        Only with a SuperLink can they come: the time without one is not theirs."""
        self.link()
        until = dict.fromkeys(wanted, time.monotonic() + self.settings.wait)
        self.nodes.begin_wait()
        while self.nodes.awaited(self.link(), until):
            time.sleep(POLL_SECONDS)

    def link(self) -> SuperLinkClient:
        """Opened when it is needed."""
        if self._link is None:
            try:
                self._link = self.opens(self.connection, self.settings.patience, self.warn)
            except Lost as lost:
                raise UserError(
                    f"no SuperLink within {self.settings.patience:g} s (flower.patience): {lost}"
                ) from lost
        return self._link

    def reopen(self, lost: Lost) -> None:
        """A SuperLink that was restarted knows neither the run nor, perhaps, the nodes."""
        self._fruitless += 1
        if self._fruitless > FRUITLESS:
            raise UserError(
                f"{lost}, more than {FRUITLESS} times without an answer in between: see its log"
            )
        self.warn(f"{lost}; waiting for it, then the jobs without an answer are sent again")
        self.close(finished=False)
        self._link = None
        registered, met = self.nodes.registered, self.nodes.met
        self.nodes = ClientNodes(self.warn, registered, met, self.audit)

    def close(self, finished: bool) -> None:
        if self._link is not None:
            self._link.close(finished)


def outcome(answer: Arrived, question: Sent) -> Outcome:
    """What a node's answer to a question comes to; never an exception, whatever the node sent."""
    client = question.client
    if answer.content is None:
        return Failure(client, answer.error)
    try:
        text, pieces = records.streamed(answer.content)
        heading = messages.from_json(text, messages.Answer)
        asked = question.nonce, question.node, client
        if (heading.nonce, answer.node, heading.client) != asked:
            return Failure(client, "its answer is to another question: an old one, sent again?")
        if heading.reason:
            why = one_line(heading.reason) or "no update, and no reason that can be read"
            return Failure(client, why, heading.refused)
        unpacker = answer.unpacker or Unpacker(question.declared)
        for piece in pieces:  # that have not gone into it as they came
            unpacker.feed(piece)
        update = unpacker.finish(heading.digest)
    except serialization.Undeclared as error:
        return Failure(client, one_line(str(error)))
    except serialization.Damaged as error:
        return Failure(client, f"its answer is malformed: {error}")
    state = {KEPT: question.nonce} if heading.kept else None
    return Result(client, update, heading.weight, state, heading.metrics)
