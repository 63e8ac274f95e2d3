"""A federation with somebody who looks on: everything that its server sees, kept in memory.

A run of the round loop as any other, in one process; clients are protected as the recipe says, and
what is kept of a client is what leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedrl.aggregation import rules
from fedrl.config.build import build_clients
from fedrl.config.schema import Config
from fedrl.core.types import Algorithm, Failure, Job, Metrics, Record, Result, Tensors
from fedrl.engines.in_process import InProcess
from fedrl.federation import round_loop
from fedrl.privacy import clipping
from fedrl.runs.private_run import mechanism

VIEWS = ("update", "updates", "mean", "model")
"""What an attack starts from: one update of a client, all of its updates, the mean of a round's
updates, the final model."""


@dataclass
class Seen:
    """`states[t]` after round t; `updates[t - 1][k]` what client k sent in round t."""

    states: list[Tensors] = field(default_factory=list)
    updates: list[dict[int, Tensors]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=dict)
    lengths: list[float] = field(default_factory=list)
    """Of all updates, as they were sent."""
    numbers: int = 0
    """In an update."""


class _Engine:
    """The engine in this process, and a copy of what its clients send."""

    def __init__(self, algorithm: Algorithm, seen: Seen) -> None:
        self.engine, self.seen = InProcess(algorithm), seen

    def run(self, jobs: Sequence[Job], deadline: float) -> Iterator[Result | Failure]:
        sent: dict[int, Tensors] = {}
        self.seen.updates.append(sent)  # who asks does not ask on after the last
        for outcome in self.engine.run(jobs, deadline):
            if isinstance(outcome, Failure):
                raise RuntimeError(f"client {outcome.client}: {outcome.reason}")
            sent[outcome.client] = outcome.update
            yield outcome


class _Store:
    """The rounds' states, in memory."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def load(self) -> None:
        return None

    def log(self, done: round_loop.Round) -> None:
        self.seen.metrics |= done.metrics

    def log_clients(self, records: list[Record]) -> None:
        """Nobody failed: a client that does ends the run."""

    def checkpoint(self, snapshot: round_loop.Snapshot) -> None:
        if snapshot.round >= 0:
            self.seen.states.append(snapshot.states[0])


def watch(config: Config, algorithm: Algorithm) -> Seen:
    """The run to its end."""
    seen = Seen()
    clients = build_clients(config, algorithm)
    round_loop.run(
        config.federation,
        clients,
        _Engine(clients, seen),
        rules.build(config.rule, config.combined, clients),
        _Store(seen),
        seed=config.seed,
        rounds=config.rounds,
        eval_every=config.rounds,
        privacy=mechanism(config, clients, None),
    )
    for state, sent in zip(seen.states, seen.updates):
        form = clipping.layout(algorithm, algorithm.broadcast(state, 1))
        seen.numbers = form.size
        seen.lengths += [float(np.linalg.norm(form.vector(update))) for update in sent.values()]
    return seen
