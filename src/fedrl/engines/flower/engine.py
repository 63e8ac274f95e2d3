"""The engine: jobs of the round loop to nodes, their answers back in the order of the jobs.

Checkpoints, retries and the quorum belong to `round_loop.py`. If the SuperLink goes away, its run
is submitted again as soon as it is back and the jobs that had no answer yet are sent again, with
new nonces and new clocks; so is the job of a client whose node has changed its key meanwhile. Where
updates are added up secretly (`secure_rounds.py`), every step of that is an exchange of questions
and answers, as a job is (`node_calls.py`).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType

import numpy as np

from fedrl.config.flower import Settings
from fedrl.core import serialization
from fedrl.core.own_data import Agrees
from fedrl.core.types import Algorithm, Failure, Job, Tensors, UserError
from fedrl.core.update_refusal import ranges
from fedrl.engines.flower import messages
from fedrl.engines.flower.approval import digest
from fedrl.engines.flower.client_nodes import BUSY_SECONDS
from fedrl.engines.flower.connection import Connection, Lost
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.node_calls import KEPT, NodeCalls, Opens, Outcome, Question, Sent
from fedrl.engines.flower.secure_rounds import SecureSum
from fedrl.engines.flower.superlink_client import wait_for
from fedrl.engines.worker_pool import START_SECONDS
from fedrl.privacy import clipping
from fedrl.privacy.secure_aggregation import Terms, identity
from fedrl.privacy.secure_aggregation import messages as secure_messages

NOT_TWICE = "the SuperLink went away, and an update with noise of its own is not asked for twice"
ROOM = 2**20
"""Bytes that an answer may have beside its declared tensors."""


@dataclass(frozen=True)
class Recipe:
    """What nodes must know of a run: its name, its configuration, how many states to keep."""

    run: str
    text: str
    keep: int


class FlowerEngine:
    """`terms` are those of secure sums; none where updates travel as they are. With `once` no job
    is sent a second time: each update shows new noise."""

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
        audit: CoordinatorAudit | None = None,
    ) -> None:
        self.audit = audit or CoordinatorAudit(None)
        self.algorithm = algorithm
        self.recipe = recipe
        self.settings = settings
        self.warn = warn
        self.terms = terms
        self.once = once
        self.calls = NodeCalls(connection, settings, warn, opens, self.audit)
        self._submitted: dict[int, Job] = {}  # by client, until its outcome is here
        self._sent: dict[str, Sent] = {}  # of those, what is at a node
        self._until: dict[int, float] = {}  # of those, how long to wait for their nodes
        self._done: deque[tuple[int, Outcome]] = deque()

    @property
    def owners(self) -> dict[int, int]:
        """Node of each client that is connected."""
        return self.calls.nodes.owners

    def label(self, client: int) -> str:
        """Number and name, as the register has it."""
        return self.calls.nodes.label(client)

    def __enter__(self) -> FlowerEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self.calls.close(finished=kind is None)
        self.audit.add("ended", **self._run(), completed=kind is None)

    @property
    def recipe_digest(self) -> str:
        """How nodes' audit logs call what they were sent."""
        return digest(self.recipe.text)

    def _run(self) -> dict[str, str]:
        return {"run": self.recipe.run, "recipe": self.recipe_digest}

    def _audited(self, asked: Sequence[Job], found: Mapping[int, Outcome]) -> None:
        """What came of a round's jobs."""
        first = asked[0]
        about = {"round": first.round, "attempt": first.attempt, "summed": self.terms is not None}
        self.audit.outcomes("round", found, **self._run(), **about)

    def prepare(self, clients: Sequence[int]) -> None:
        """Have these clients build what the recipe asks for; say who cannot, and why.

        What must agree and does not is found here, before a round has begun; where nothing must,
        rounds find out the rest.
        """
        if not isinstance(self.algorithm, Agrees):
            return
        questions = {client: self._readiness(client) for client in clients}
        failed: dict[int, str] = {}
        found: dict[int, Outcome] = {}
        try:
            for client, outcome in self.calls.ask(questions, START_SECONDS, ROOM):
                found[client] = outcome
                if isinstance(outcome, Failure):
                    failed[client] = outcome.reason
                    self.warn(f"client {client} is not ready: {outcome.reason}")
        except Lost as lost:  # the rounds find out the same
            self.calls.reopen(lost)
            return
        self.audit.outcomes("ready", found, **self._run())
        if len(failed) == len(questions):
            raise UserError(
                f"none of {len(failed)} clients is ready: {next(iter(failed.values()))}"
            )

    def _readiness(self, client: int) -> Question:
        def heading(nonce: str, digest: str) -> messages.Ready:
            return messages.Ready(nonce, client, self.recipe.run, self.recipe.text, digest)

        return Question(client, {}, heading, {})

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Outcome]:
        """Outcomes in the order of the jobs; early ones of later jobs wait for their turn."""
        if self.terms is not None:
            outcomes = self._summed(jobs, deadline, self.terms)
            self._audited(jobs, {outcome.client: outcome for outcome in outcomes})
            yield from outcomes
            return
        found: dict[int, Outcome] = {}
        for outcome in self._each(jobs, deadline):
            found[outcome.client] = _without_update(outcome)
            if len(found) == len(jobs):
                self._audited(jobs, found)
            yield outcome
            del outcome  # a model, while the next one arrives

    def _each(self, jobs: Sequence[Job], deadline: float) -> Iterator[Outcome]:
        """Updates that travel as they are."""
        questions = [self._question(job, deadline) for job in jobs]
        finished: dict[int, Outcome] = {}
        before = self.calls.tries
        limit = max(self._limit(job.broadcast) for job in jobs)
        turn, moved = 0, set[int]()
        while turn < len(jobs):
            left = {i: questions[i] for i in range(turn, len(jobs)) if i not in finished}
            try:
                for i, outcome in self.calls.ask(left, deadline, limit):
                    if i not in moved and not self.once and self.calls.has_moved(outcome):
                        moved.add(i)  # it is asked once more, where it is now
                        continue
                    finished[i] = outcome
                    del outcome
                    while turn in finished:
                        yield finished.pop(turn)
                        turn += 1
            except Lost as lost:
                self.calls.reopen(lost)
                if self.once and self.calls.tries > before:
                    for i, job in enumerate(jobs[turn:], turn):
                        yield finished.get(i) or Failure(job.client, NOT_TWICE)
                    return

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

        # What comes back of a secure sum, `secure_messages` knows.
        declared = None if self.terms is not None else self.algorithm.declare(job.broadcast)
        return Question(job.client, job.broadcast, heading, declared)

    def _limit(self, broadcast: Tensors) -> int:
        """Bytes that an answer may have: what the method declares, and some room."""
        specs = self.algorithm.declare(broadcast).values()
        declared = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in specs)
        return declared + ROOM + 512 * len(specs)

    # Secure sums ---------------------------------------------------------------------------------

    def _summed(self, jobs: Sequence[Job], deadline: float, terms: Terms) -> list[Outcome]:
        """The mean as the update of everybody in the sum; from the start if the SuperLink goes."""
        broadcast = jobs[0].broadcast
        if self.settings.down != "float32":  # what clients take as the values that they differ from
            broadcast = serialization.unpack(serialization.pack(broadcast, self.settings.down))
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
                    self.calls,
                    ranges(self.algorithm),
                    partial(self._doubts, exchange, identity.Signers(), jobs[0]),
                ).run(first)
            except Lost as lost:
                self.calls.reopen(lost)

    def _doubts(
        self,
        exchange: str,
        signers: identity.Signers,
        asked: Job,
        client: int,
        signed: secure_messages.Signed,
        broadcast: str,
    ) -> str:
        """One whose signature its peers would refuse must fail alone, and not make all give up."""
        key = self.calls.key_of(client)
        if key is None:
            return ""
        terms = secure_messages.sendable(self.terms)
        job = secure_messages.digest(self.recipe.text, broadcast, terms, asked.round, asked.attempt)
        statement = identity.about_keys(exchange, client, signed.keys, job, signed.history)
        return signers.doubt(client, key, statement, signed.signature)

    # Rounds without a common end -----------------------------------------------------------------

    def submit(self, jobs: Sequence[Job]) -> None:
        """More work, not more than one job of a client; `next_outcome` sends it and waits."""
        self._submitted |= {job.client: job for job in jobs}
        self.calls.nodes.begin_wait()

    def next_outcome(self, deadline: float = 0.0) -> tuple[int, Outcome]:
        """Of what was submitted, in whatever order they come, and whose it is."""
        while True:
            try:
                # First, also if outcomes are waiting: nobody should be idle meanwhile.
                self._note(self._dispatch(deadline))
                if self._done:
                    return self._done.popleft()
                limit = max(self._limit(job.broadcast) for job in self._submitted.values())
                self._note(self.calls.collect(deadline, self._sent, limit))
            except Lost as lost:
                self.calls.reopen(lost)
                self._sent.clear()
                self._until.clear()

    def _dispatch(self, deadline: float) -> dict[int, Outcome]:
        """Send jobs to nodes that are here; nobody's answer waits for nodes that are not.

        The driver may be busy with a round meanwhile, so questions last longer.
        """
        away = {question.client for question in self._sent.values()}
        new = {client: job for client, job in self._submitted.items() if client not in away}
        if not new:
            return {}
        link = self.calls.link()  # the time without one is not the nodes'
        for client in new:
            self._until.setdefault(client, time.monotonic() + self.settings.wait)
        until = {client: self._until[client] for client in new}
        awaited = self.calls.nodes.awaited(link, until)
        ready = {c: self._question(j, deadline) for c, j in new.items() if c not in awaited}
        return self.calls.send(ready, deadline, BUSY_SECONDS, self._sent)

    def _note(self, outcomes: Mapping[int, Outcome]) -> None:
        for client, outcome in outcomes.items():
            self._audited([self._submitted.pop(client)], {client: outcome})
            self._until.pop(client, None)
        self._done.extend(outcomes.items())


def _without_update(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Failure) else replace(outcome, update={})


def _tag(state: Tensors | None) -> str:
    """Where a client's state lies on its node's disk."""
    if state is None:
        return ""
    if set(state) != {KEPT}:
        raise UserError("this run's clients have their states in its checkpoint, not on nodes")
    return str(state[KEPT])
