"""The round loop: what happens to data in one round of any method, top to bottom.

    broadcast = algorithm.broadcast(state)               server → clients
    update    = algorithm.local(broadcast, …)            where the private data lives (the engine)
    mean      = aggregate(updates that pass the check)   streaming, in the order of clients
    state     = algorithm.step(state, mean)              server
    evaluate, record, checkpoint                         the store

The algorithm knows nothing of the engine, the engine nothing of the method. All randomness comes
from (seed, round, client, purpose), so a killed run resumes to the same numbers.

Baselines are other federations of the same algorithm: `groups` says which clients share one server
state. Federated: one group of all. Independent: a group per client. Local: one client alone.
Centralized: one client that holds everybody's data.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fedrl.aggregation.rule import Aggregator
from fedrl.aggregation.settings import part
from fedrl.core import seeding, tree
from fedrl.core.abilities import server_step
from fedrl.core.compile_time import compile_seconds
from fedrl.core.types import (
    Algorithm,
    Failure,
    Job,
    Metrics,
    Record,
    Result,
    Tensors,
    TooFew,
    UserError,
)
from fedrl.federation.client_sampling import Settings, client_env_ids, draw_cohort, groups
from fedrl.federation.simulated_clock import Due
from fedrl.federation.update_check import Received, add, combined
from fedrl.privacy import Spent
from fedrl.privacy.mechanism import Exchange, Mechanism


@dataclass(frozen=True)
class Snapshot:
    """Everything a run needs to go on: what a checkpoint holds."""

    round: int
    states: list[Tensors]
    clients: dict[int, Tensors] = field(default_factory=dict)
    totals: Metrics = field(default_factory=dict)
    # Of simulated clients at work (`async_buffer.py`): the round they began in, what will come.
    under_way: tuple[tuple[int, Due], ...] = ()


@dataclass(frozen=True)
class Round:
    """What observers and the store are told of a finished round."""

    round: int
    rounds: int
    metrics: Metrics
    clients: list[Record]
    seconds: dict[str, float]
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """Of this process: what the parts cost, however busy the machine is."""
    compile_seconds: dict[str, float] = field(default_factory=dict)
    """Of `seconds`, what this process spent compiling; nothing of clients elsewhere."""


class Engine(Protocol):
    def run(self, jobs: Sequence[Job], deadline: float) -> Iterator[Result | Failure]:
        """Outcomes in the order of the jobs, as they come in. An engine that makes secure sums
        itself gives the mean as the update of every client in the sum."""


class Store(Protocol):
    def load(self) -> Snapshot | None: ...
    def log(self, done: Round) -> None: ...
    def log_clients(self, records: list[Record]) -> None: ...
    def checkpoint(self, snapshot: Snapshot) -> None: ...


class StopRun(Exception):
    """An observer has seen enough: the run ends after this round, and can be resumed."""


class QuorumLost(UserError):
    """Too few usable updates, again and again; `records` say whose and why."""

    def __init__(self, message: str, records: list[Record]) -> None:
        super().__init__(message)
        self.records = records


def run(
    settings: Settings,
    algorithm: Algorithm,
    engine: Engine,
    aggregate: Aggregator,
    store: Store,
    *,
    seed: int,
    rounds: int,
    eval_every: int = 1,
    checkpoint_every: int = 1,
    observers: Iterable[Callable[[Round], None]] = (),
    warn: Callable[[str], None] = print,
    privacy: Mechanism | None = None,
    robust_metrics: bool = False,
    exchange: Callable[..., tuple[Snapshot, Metrics, list[Record]]] | None = None,
) -> Snapshot:
    """Train from the store's last checkpoint, or from the start, to the last round.

    `exchange` is called instead of `_exchange`, for another way to meet the clients. With
    `robust_metrics` what they report is combined by medians, as a rule against liars asks for.
    """
    parts = Parts(settings, algorithm, engine, aggregate, seed, warn, privacy, robust_metrics)
    members = groups(settings)
    now = store.load()
    if now is None:
        first = algorithm.init(seeding.derive(seed, "init"))
        now = Snapshot(round=-1, states=[first] * len(members))
        store.checkpoint(now)
    saved = now.round
    try:
        for number in range(now.round + 1, rounds + 1):
            clock = Clock()
            after, metrics = replace(now, round=number), dict(now.totals)
            records: list[Record] = []
            if number > 0 or algorithm.initial_exchange:
                meet = exchange or _exchange
                after, metrics, records = meet(parts, now, members, number, clock)
            if privacy is not None:
                metrics |= privacy.report(number, after.totals)
            if number % eval_every == 0 or number == rounds:
                holds = client_env_ids(settings)
                owners = [[i for client in group for i in holds[client]] for group in members]
                evaluation_seed = seeding.derive(seed, "evaluate", number)
                metrics |= algorithm.evaluate(after.states, owners, number, evaluation_seed)
                clock.lap("evaluate")
            done = Round(number, rounds, metrics, records, clock.laps, clock.cpu, clock.compile)
            store.log(done)
            now = after
            if number % checkpoint_every == 0 or number == rounds:
                store.checkpoint(now)
                saved = number
            for observe in observers:
                observe(done)
    except (Spent, StopRun) as end:  # as planned: what was learned until now is the result
        if isinstance(end, Spent):
            warn(str(end))
        if now.round > saved:
            store.checkpoint(now)
    except BaseException as error:  # Ctrl-C too: the last finished round is never lost
        if now.round > saved:
            store.checkpoint(now)
        if isinstance(error, QuorumLost):
            store.log_clients(error.records)
        raise
    return now


@dataclass(frozen=True)
class Parts:
    """What a run is made of."""

    settings: Settings
    algorithm: Algorithm
    engine: Engine
    aggregate: Aggregator
    seed: int
    warn: Callable[[str], None]
    privacy: Mechanism | None = None
    robust_metrics: bool = False


def _exchange(
    parts: Parts, now: Snapshot, members: list[list[int]], number: int, clock: Clock
) -> tuple[Snapshot, Metrics, list[Record]]:
    """One exchange with the clients, tried again with a new cohort while below the quorum."""
    settings, algorithm, seed = parts.settings, parts.algorithm, parts.seed
    drawn_by = seed if parts.privacy is None else parts.privacy.cohorts
    records: list[Record] = []
    totals = dict(now.totals)
    down = up = 0
    for attempt in range(settings.retries + 1):
        if parts.privacy is not None:
            parts.privacy.charge(number, totals)
        broadcasts = [algorithm.broadcast(state, number) for state in now.states]
        jobs, behind = [], []
        for group, clients in enumerate(members):
            for client in draw_cohort(clients, settings.cohort, drawn_by, number, attempt):
                job_seed = seeding.local(seed, number, attempt, client)
                kept_by = now.clients.get(client)
                jobs.append(Job(client, broadcasts[group], kept_by, job_seed, number, attempt))
                behind.append(group)
        down += sum(tree.nbytes(job.broadcast) for job in jobs)
        clock.lap("broadcast")

        accepted: list[Result] = []  # without updates: these are dropped once aggregated
        refused = 0
        states = list(now.states)
        outcomes = zip(behind, jobs, parts.engine.run(jobs, settings.deadline))
        for group, stream in itertools.groupby(outcomes, key=lambda item: item[0]):
            received = Received(algorithm, broadcasts[group], number, attempt, records)
            checked = received.check((job, outcome) for _, job, outcome in stream)
            combine = parts.aggregate
            if parts.privacy is not None:
                exchange = Exchange(number, attempt, behind.count(group))
                combine = parts.privacy.aggregator(combine, broadcasts[group], exchange)
            try:
                mean = combine(checked)
            except TooFew as error:  # no other rule instead: as if nobody had answered
                received.blame(str(error))
                received.accepted.clear()
            up += received.bytes
            refused += received.refused
            if not received.accepted:
                continue
            share = len(received.accepted) / len(members[group])
            stepped = server_step(algorithm, now.states[group], mean, number, share)
            if tree.all_finite(stepped):
                states[group] = stepped
                accepted += received.accepted
            else:  # finite updates can still overflow together: keep what was good
                received.blame("with it the server's step would not be finite")
        clock.lap("clients")

        needed = max(1, part(settings.quorum, len(jobs)))
        if len(accepted) >= needed:
            break
        # Everybody is asked again, and those who refuse would refuse again.
        in_vain = len(jobs) - refused < needed and not settings.cohort
        if in_vain or attempt == settings.retries:
            when = "" if in_vain else f" in the last of {settings.retries + 1} attempts"
            raise QuorumLost(
                f"round {number}: only {len(accepted)} of {len(jobs)} clients gave a usable update"
                f"{when}, {needed} needed (federation.quorum): {reasons(records[-len(jobs) :])}",
                records,
            )
        parts.warn(
            f"round {number}, attempt {attempt + 1}: {len(accepted)} of {len(jobs)} updates usable,"
            f" {needed} needed ({reasons(records[-len(jobs) :])})"
        )
    kept = {result.client: result.state for result in accepted if result.state is not None}
    if settings.kind == "federated":  # alone, a client and its server are one
        add(totals, {"comm/bytes_up": float(up), "comm/bytes_down": float(down)})
    metrics = combined(accepted, totals, parts.robust_metrics)
    metrics["cohort/size"] = float(len(jobs))
    metrics["cohort/failed"] = float(sum(r["status"] == "failed" for r in records))
    return Snapshot(number, states, now.clients | kept, totals), metrics | totals, records


def reasons(records: list[Record]) -> str:
    """Who failed and why, a reason once for all clients that share it."""
    clients: dict[str, list[str]] = {}
    for record in records:
        if record["status"] == "failed":
            clients.setdefault(str(record["reason"]), []).append(str(record["client"]))
    return "; ".join(f"client {', '.join(who)}: {reason}" for reason, who in clients.items())


class Clock:
    """Seconds spent in each part of a round: on the wall, of this process's cores, compiling."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.compile: dict[str, float] = {}
        self._last = self._now()

    def lap(self, name: str) -> None:
        now = self._now()
        for spent, end, begin in zip(
            (self.laps, self.cpu, self.compile), now, self._last, strict=True
        ):
            spent[name] = spent.get(name, 0.0) + end - begin
        self._last = now

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), compile_seconds()
