"""Rounds that wait for K updates and not for the slowest client.

"Federated Learning with Buffered Asynchronous Aggregation" (FedBuff, AISTATS 2022), as another
exchange of the round loop: records, evaluation, checkpoints and resuming are those of every run.

    C clients are at work (federation.cohort, or all), each with the broadcast that it began with
    one finishes: its update goes into the buffer, and it waits for the next step
    the buffer has K updates: one server step, which is one round, with the rule of aggregation over

        s(τ_i) Δ_i      s(τ) = 1/√(1 + τ)      τ_i: server steps made since client i began

    the free places are filled with clients that get the new broadcast

Where we differ from the paper: a client that has delivered waits for the step. So a buffer has at
most one update of a client: one fast liar cannot fill it, though all liars may be in it together.
And K = C is the synchronous run if nobody fails, whatever the clients' speeds. With K < C a slow
client's place stays taken and its update comes when it does.

A client that fails frees its place at once: for one that was not asked since the last step, else
for itself again, `federation.retries` times. If nobody is left whom to ask, a buffer that is not
full is used all the same if it has `federation.quorum` of K updates; otherwise the run stops.

Which clients finish first decides the numbers. On a simulated clock (`simulated_clock.py`) the seed
decides that; with processes and machines, reality does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from fedrl.aggregation.rule import Aggregator, Stream
from fedrl.aggregation.settings import part
from fedrl.core import seeding, tree
from fedrl.core.abilities import server_step
from fedrl.core.types import Failure, Job, Metrics, Record, Result, Tensors, TooFew
from fedrl.federation import round_loop, update_check
from fedrl.federation.async_settings import Settings
from fedrl.federation.client_sampling import draw_cohort
from fedrl.federation.round_loop import Clock, Parts, QuorumLost, Snapshot
from fedrl.federation.simulated_clock import Due, SimulatedClock
from fedrl.federation.update_check import Received
from fedrl.privacy.mechanism import Exchange

TIME = "async/time"
"""The running total of time: of the simulated clock, or seconds where clients are real."""


class Streaming(Protocol):
    """An engine whose clients need not begin and end together; each has at most one job."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand out work, without waiting for it."""

    def next_outcome(self, deadline: float) -> tuple[int, Result | Failure]:
        """Wait for who finishes, fails or outlasts the deadline next: its number and outcome."""


class Held(NamedTuple):
    """An update in the buffer; `result` is what else came with it."""

    update: Tensors
    weight: float
    staleness: int
    result: Result
    record: Record


@dataclass
class Step:
    """One server step in the making."""

    parts: Parts
    now: Snapshot
    number: int
    sent: Tensors
    received: Received
    buffer: dict[int, Held] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)
    begun: int = 0

    def arrived(self, client: int, outcome: Result | Failure, staleness: int) -> None:
        job = Job(client, self.sent, None, 0)  # whose it is, is all that is asked of it here
        usable = list(self.received.check([(job, outcome)]))
        record = self.received.records[-1]
        record["staleness"] = staleness
        if self.failures[client]:
            record["attempt"] = self.failures[client] + 1
        for update, weight in usable:
            self.buffer[client] = Held(
                update, weight, staleness, self.received.accepted[-1], record
            )
        if not usable:
            for_good = isinstance(outcome, Failure) and outcome.final
            self.failures[client] += self.parts.settings.retries + 1 if for_good else 1

    def drop(self, reason: str) -> None:
        """What is in the buffer is of no use together; who sent it is asked again."""
        for client, held in self.buffer.items():
            held.record.update(status="failed", reason=reason)
            self.failures[client] += 1
        self.buffer.clear()


class AsyncBuffer:
    """The exchange of `federation.run`; remembers who is at work from one round to the next."""

    def __init__(self, settings: Settings, engine: Streaming) -> None:
        self.settings = settings
        self.engine = engine
        self.began: dict[int, int] = {}  # client at work → the round that it began in
        self._since = -1.0  # real time of the last step

    def __call__(
        self, parts: Parts, now: Snapshot, members: list[list[int]], number: int, clock: Clock
    ) -> tuple[Snapshot, Metrics, list[Record]]:
        sent = parts.algorithm.broadcast(now.states[0], number)
        if self._since < 0:
            self._go_on(now)
        totals = dict(now.totals)
        if parts.privacy is not None:
            parts.privacy.charge(number, totals)
        clock.lap("broadcast")
        received = Received(parts.algorithm, sent, number, 0, [])
        step = Step(parts, now, number, sent, received)
        state = None
        while state is None:
            self._fill(step)
            self._check_quorum(step)
            state = self._stepped(step)
        clock.lap("clients")
        self._count(step, totals)
        metrics = self._metrics(step, totals)
        kept = {c: h.result.state for c, h in step.buffer.items() if h.result.state is not None}
        under_way = self._under_way()
        after = Snapshot(number, [state], now.clients | kept, totals, under_way)
        return after, metrics | totals, received.records

    def _go_on(self, now: Snapshot) -> None:
        """From a checkpoint: simulated clients go on with their work, real ones begin anew."""
        self._since = time.monotonic()
        if isinstance(self.engine, SimulatedClock):
            self.engine.restore(now.totals.get(TIME, 0.0), [due for _, due in now.under_way])
            self.began = {due.client: began for began, due in now.under_way}

    def _under_way(self) -> tuple[tuple[int, Due], ...]:
        if not isinstance(self.engine, SimulatedClock):
            return ()
        return tuple((self.began[due.client], due) for due in self.engine.waiting())

    def _fill(self, step: Step) -> None:
        """Until the buffer is full, or nobody is left who could fill it."""
        while len(step.buffer) < self.settings.size:
            self._begin(step)
            if not self.began:
                return
            client, outcome = self.engine.next_outcome(step.parts.settings.deadline)
            step.arrived(client, outcome, step.number - self.began.pop(client))

    def _begin(self, step: Step) -> None:
        """Fill the free places; those who failed least come first."""
        fed, seed, number = step.parts.settings, step.parts.seed, step.number
        busy = self.began.keys() | step.buffer.keys()
        idle = [c for c in range(fed.clients) if c not in busy and step.failures[c] <= fed.retries]
        free = fed.clients_per_round - len(busy)
        if not idle or free < 1:
            return
        least = min(step.failures[c] for c in idle)
        first = [c for c in idle if step.failures[c] == least]
        jobs = [
            Job(
                client,
                step.sent,
                step.now.clients.get(client),
                seeding.local(seed, number, least, client),
                number,
                least,
            )
            for client in draw_cohort(first, free, seed, number, step.failures.total())
        ]
        self.began |= dict.fromkeys((job.client for job in jobs), number)
        step.begun += len(jobs)
        self.engine.submit(jobs)

    def _check_quorum(self, step: Step) -> None:
        size, got = self.settings.size, len(step.buffer)
        needed = max(1, part(step.parts.settings.quorum, size))
        if got == size:
            return
        last = {record["client"]: record for record in step.received.records}
        why = round_loop.reasons(list(last.values()))
        if got < needed:
            raise QuorumLost(
                f"round {step.number}: the buffer has {got} of {size} updates (async_buffer.size), "
                f"{needed} are needed (federation.quorum), and nobody is left to ask: {why}",
                step.received.records,
            )
        step.parts.warn(f"round {step.number}: a step with {got} of {size} updates ({why})")

    def _stepped(self, step: Step) -> Tensors | None:
        """The server's next state; None if the buffer turns out to be of no use."""
        parts = step.parts
        held = [step.buffer[client] for client in sorted(step.buffer)]
        combine = self._rule(parts.aggregate, held)
        if parts.privacy is not None:
            exchange = Exchange(step.number, 0, len(held))
            combine = parts.privacy.aggregator(combine, step.sent, exchange)
        try:
            mean = combine((h.update, h.weight) for h in held)
        except TooFew as error:
            step.drop(str(error))
            return None
        share = len(held) / parts.settings.clients
        stepped = server_step(parts.algorithm, step.now.states[0], mean, step.number, share)
        if tree.all_finite(stepped):
            return stepped
        step.drop("with it the server's step would not be finite")
        return None

    def _rule(self, rule: Aggregator, held: list[Held]) -> Aggregator:
        """The rule over updates that count less the older they are; after a bound on their norm."""
        scales = [self.settings.scale(h.staleness) for h in held]

        def scaled(stream: Stream) -> Tensors:
            return rule((_times(s, update), weight) for s, (update, weight) in zip(scales, stream))

        return scaled

    def _count(self, step: Step, totals: Metrics) -> None:
        down = float(step.begun * tree.nbytes(step.sent))
        update_check.add(
            totals, {"comm/bytes_up": float(step.received.bytes), "comm/bytes_down": down}
        )
        if isinstance(self.engine, SimulatedClock):
            totals[TIME] = self.engine.time
        else:
            before, self._since = self._since, time.monotonic()
            update_check.add(totals, {TIME: self._since - before})

    def _metrics(self, step: Step, totals: Metrics) -> Metrics:
        held = [step.buffer[client] for client in sorted(step.buffer)]
        metrics = update_check.combined([h.result for h in held], totals, step.parts.robust_metrics)
        records = step.received.records
        metrics["cohort/size"] = float(len(records))
        metrics["cohort/failed"] = float(sum(r["status"] == "failed" for r in records))
        staleness = [h.staleness for h in held]
        metrics["async/staleness_mean"] = float(np.mean(staleness))
        metrics["async/staleness_max"] = float(max(staleness))
        return metrics


def _times(scale: float, update: Tensors) -> Tensors:
    if scale == 1.0:
        return update
    return tree.map(lambda leaf: (scale * leaf.astype(np.float64)).astype(leaf.dtype), update)
