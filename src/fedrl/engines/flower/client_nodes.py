"""Which node is which client: nodes come and go, and say who they are when they are asked.

A look never waits. Who needs a client looks again until it is there or has been waited for long
enough, and may do other things meanwhile. A client that was waited for in vain is not waited for
again, until it has been seen. Which client a node is, is not its own to say: its key must be the
one that is registered for that client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import fedrl
from fedrl.core import serialization
from fedrl.core.types import UserError
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.adapter.records import Content
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.driver_waiting import AwaitedNodes
from fedrl.engines.flower.keys import key_digest
from fedrl.engines.flower.registered import Registered
from fedrl.engines.flower.superlink_client import Outgoing, SuperLinkClient

ANSWER_SECONDS = 30.0
"""For a node that came in the middle of a run to say who it is."""
BUSY_SECONDS = 3600.0
"""That a question lasts at the SuperLink while the driver is busy, evaluating or writing."""
ROOM = 2**20
"""Bytes that its answer may have."""


class _Asked(NamedTuple):
    node: int
    nonce: str
    expires: float


class ClientNodes:
    """The nodes that are connected, and whose they are; `owners` are those of the clients."""

    def __init__(
        self,
        warn: Callable[[str], None],
        registered: Registered | None = None,
        met: bool = False,
        audit: CoordinatorAudit | None = None,
    ) -> None:
        self.warn = warn
        self.audit = audit or CoordinatorAudit(None)
        self.registered = registered  # none where nodes have no keys
        self.owners: dict[int, int] = {}  # client → node
        self._waiting = AwaitedNodes(warn, registered)
        self.met = met  # whether a meeting has ended: mistakes in numbers are found in the first
        self._known: set[int] = set()  # nodes that have said who they are
        self._missed: set[int] = set()  # clients that were waited for in vain
        self._asked: dict[str, _Asked] = {}  # by message
        self._silent: set[int] = set()  # busy or gone: asked again as long as somebody is awaited

    def label(self, client: int) -> str:
        name = "" if self.registered is None else self.registered.name(client)
        return f"client {client} ({name})" if name else f"client {client}"

    def begin_wait(self) -> None:
        """A new wait: nodes that were silent in the last one are asked once more."""
        self._silent.clear()

    def awaited(self, link: SuperLinkClient, until: Mapping[int, float]) -> set[int]:
        """Look once who is there: which of these clients, each up to its moment, to wait for."""
        awaited = self._look(link, until)
        mute = len({asked.node for asked in self._asked.values()} | self._silent)
        self._waiting.looked(until, awaited, self.owners, mute)
        return awaited

    def _look(self, link: SuperLinkClient, until: Mapping[int, float]) -> set[int]:
        now = time.monotonic()  # before the look: who came by then is here
        online = link.nodes()
        self.owners = {c: node for c, node in self.owners.items() if node in online}
        self._known &= online
        missing = until.keys() - self.owners.keys()
        hopeful = {c for c in missing - self._missed if now < until[c]}
        self._ask(link, online, set() if hopeful else self._silent)
        self._listen(link, now)
        missing = until.keys() - self.owners.keys()
        self._missed -= until.keys() - missing
        if self._asked:  # it may be one of them that says its name next
            return set(missing)
        over = {c for c in missing if now >= until[c] or c in self._missed}
        self._missed |= over
        self.met |= missing == over
        return missing - over

    def _ask(self, link: SuperLinkClient, online: set[int], spared: set[int]) -> None:
        gone = [number for number, asked in self._asked.items() if asked.node not in online]
        link.forget(gone)
        for number in gone:
            del self._asked[number]
        waiting = {asked.node for asked in self._asked.values()}
        for node in online - self._known - waiting - spared:
            nonce = messages.nonce()
            content = records.content(messages.to_json(messages.Who(nonce)))
            (number,) = link.push([Outgoing(node, content, ANSWER_SECONDS + BUSY_SECONDS)])
            if number:
                self._asked[number] = _Asked(node, nonce, time.monotonic() + ANSWER_SECONDS)

    def _listen(self, link: SuperLinkClient, now: float) -> None:
        """Who says its name, however late one looks; else who is late with it."""
        answers = link.pull(list(self._asked), ROOM)
        for answer in answers:
            asked = self._asked.pop(answer.message)
            if answer.content is not None:
                self._introduce(link, answer.content, answer.node, asked)
            else:
                self._skip(link, asked.node, f"does not say who it is: {answer.error}")
        late = [n for n, asked in self._asked.items() if now >= asked.expires and not answers]
        link.forget(late)
        for number in late:
            why = f"does not say who it is: no answer within {ANSWER_SECONDS:g} s"
            self._skip(link, self._asked.pop(number).node, why)

    def _skip(self, link: SuperLinkClient, node: int, why: str) -> None:
        if node not in self._silent:
            self._silent.add(node)
            self._leave_out(f"{self._called(link, node)} {why}")

    def _called(self, link: SuperLinkClient, node: int) -> str:
        """By its key, as the register and `fedrl flower status` have it; Flower's number of it is
        in nobody's hands."""
        key = None if self.registered is None else link.key_of(node)
        if self.registered is None or key is None:
            return f"node {node}"
        whose = self.registered.owner(key)
        return f"the node with key {key_digest(key)[:16]}{f' of {whose}' if whose else ''}"

    def _leave_out(self, why: str) -> None:
        self.warn(why)
        self.audit.refuse("left out", reason=one_line(why))

    def _introduce(self, link: SuperLinkClient, said: Content, sender: int, asked: _Asked) -> None:
        node, nonce = asked.node, asked.nonce
        self._known.add(node)
        try:
            name = messages.from_json(records.opened(said)[0], messages.Name)
            if name.nonce != nonce or sender != node:
                raise serialization.Damaged("an answer to another question")
        except serialization.Damaged as error:
            self._leave_out(f"{self._called(link, node)} is left out: {error}")
            return
        if name.version != fedrl.__version__:
            self._leave_out(
                f"{self._called(link, node)} (client {name.client}) is left out: it runs fedrl "
                f"{one_line(name.version)}, the driver {fedrl.__version__}"
            )
        elif self.registered is not None and (
            doubt := self.registered.doubt(name.client, link.key_of(node))
        ):
            self._known.discard(node)  # it may be registered later
            claim = f"it says that it is client {name.client}, but {doubt}"
            self._skip(link, node, f"is left out: {claim}")
        elif (other := self.owners.get(name.client)) is None:
            self.owners[name.client] = node
            key = None if self.registered is None else link.key_of(node)
            known = "" if key is None else key_digest(key)
            called = "" if self.registered is None else self.registered.name(name.client)
            self.audit.add(
                "joined", client=name.client, name=called, key=known, version=name.version
            )
        elif not self.met:
            twins = f"{self._called(link, other)} and {self._called(link, node)}"
            raise UserError(
                f"two nodes say that they are client {name.client}, {twins}: give every node its "
                "own number (fedrl flower node --client N)"
            )
        else:  # whoever it is, it stops no run; it is asked again when the other one is gone
            self._known.discard(node)
            twin = self._called(link, other)
            self._skip(
                link, node, f"is left out: it says that it is client {name.client}, as {twin} does"
            )
