"""The whole of `[privacy]` in a round: what replaces the mean, and what an exchange costs.

The round loop asks before every exchange (`charge`: the target ε), lets it make one update of many
(`aggregator`) and writes ε into the round's record. Retries of a round are exchanges, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedrl.core.types import Algorithm, Metrics, Tensors, TooFew
from fedrl.privacy import Settings, Spent, accounting, clipping, noise, secure_aggregation

Stream = Iterable[tuple[Tensors, float]]
Aggregator = Callable[[Stream], Tensors]

EXCHANGES = "privacy/exchanges"
"""The running total that ε is computed from; a checkpoint holds it."""


@dataclass(frozen=True)
class Exchange:
    """Which one this is: `asked` clients in attempt `attempt` of round `round`."""

    round: int
    attempt: int
    asked: int


class Ledger(Protocol):
    """A number of exchanges that outlives a crash."""

    def read(self) -> int: ...
    def write(self, count: int) -> None: ...


class Mechanism:
    """`clients` N and `cohort` M of the run; `chosen(round)` are the clients of a first attempt.

    `ledger` is the number of exchanges as it is kept on disk. With noise of the operating system an
    exchange that is repeated after a crash shows new noise and counts again; noise from the seed
    shows what was seen before, so it needs no ledger. `summed` says that the engine makes secure
    sums itself: it shows no updates, and gives the mean as that of every client in the sum.
    `cohorts` is the seed of the cohorts: another one than the run's, which many know, where ε
    counts on nobody knowing who was asked.
    """

    def __init__(
        self,
        settings: Settings,
        algorithm: Algorithm,
        seed: int,
        clients: int,
        cohort: int,
        chosen: Callable[[int], Sequence[int]],
        ledger: Ledger | None = None,
        summed: bool = False,
        cohorts: int | None = None,
    ) -> None:
        self.settings, self.algorithm, self.seed = settings, algorithm, seed
        self.clients, self.cohort, self.chosen = clients, cohort, chosen
        self.ledger = ledger
        self.summed = summed
        self.cohorts = seed if cohorts is None else cohorts
        self.delta = settings.delta or accounting.default_delta(clients)
        self._taken = np.zeros(clients, np.int64)
        self._most: list[int] = []  # of any client, after each round

    def epsilon(self, round: int, exchanges: int) -> float:
        """ε after this round and so many exchanges in all; infinite without noise."""
        s = self.settings
        if s.where == "central" and not s.secure:
            return accounting.amplified(s.noise, exchanges, self.delta, self.clients, self.cohort)
        return accounting.full_view(s.noise, self.most(round, exchanges), self.delta)

    def most(self, round: int, exchanges: int) -> int:
        """Exchanges that a client can have taken part in: first attempts, and every other one."""
        first = 0 if self.algorithm.initial_exchange else 1
        for number in range(first + len(self._most), round + 1):
            self._taken[list(self.chosen(number))] += 1
            self._most.append(int(self._taken.max()))
        rounds = round + 1 - first
        if not rounds:
            return exchanges
        return min(exchanges, self._most[rounds - 1] + max(0, exchanges - rounds))

    def report(self, round: int, totals: Metrics) -> Metrics:
        """For the round's record."""
        if not self.settings.noise:
            return {}
        return {"privacy/epsilon": self.epsilon(round, int(totals.get(EXCHANGES, 0)))}

    def charge(self, round: int, totals: Metrics) -> None:
        """Count one more exchange in the run's totals, if the target allows it."""
        begun = int(totals.get(EXCHANGES, 0))
        if self.ledger is not None:
            begun = max(begun, self.ledger.read())
        target = self.settings.epsilon
        if target and (epsilon := self.epsilon(round, begun + 1)) > target:
            raise Spent(
                f"stopped before round {round}: ε would be {epsilon:.4g}, above privacy.epsilon = "
                f"{target:g} (δ = {self.delta:.2g})"
            )
        if self.ledger is not None:
            self.ledger.write(begun + 1)
        totals[EXCHANGES] = float(begun + 1)

    def aggregator(self, rule: Aggregator, broadcast: Tensors, exchange: Exchange) -> Aggregator:
        """`rule` over updates that keep to the bound, or over their noisy or secure mean alone."""
        s = self.settings
        form = clipping.layout(self.algorithm, broadcast)
        deviation = s.noise * s.clip if s.where == "central" else 0.0
        draw = noise.source(s.seeded, self.seed, f"privacy/{exchange.attempt}", exchange.round)

        def clipped(stream: Stream) -> Tensors:
            return rule((clipping.clip(update, s.clip, form), w) for update, w in stream)

        def noisy(stream: Stream) -> Tensors:
            vectors = clipping.vectors(stream, s.clip, form)
            mean = noise.noisy_mean(vectors, form.size, exchange.asked, deviation, draw)
            return rule([(form.update(mean), 1.0)])

        def masked(stream: Stream) -> Tensors:
            terms = secure_aggregation.Terms.of(s, exchange.asked)
            vectors = clipping.vectors(stream, s.clip, form)
            return rule([(form.update(secure_aggregation.mean(vectors, terms, draw)), 1.0)])

        def summed(stream: Stream) -> Tensors:
            return rule([(engine_mean(stream), 1.0)])

        if s.secure:
            return summed if self.summed else masked
        if deviation:
            return noisy
        # What local noise made longer is not to be cut: the noise is most of it.
        return rule if s.noise else clipped


def engine_mean(stream: Stream) -> Tensors:
    """The mean that the engine has made, which every client in the sum comes with."""
    mean: Tensors | None = None
    for update, _ in stream:  # to the end: the records are written on the way
        mean = update
    if mean is None:
        raise TooFew("secure sum: nobody is in it")
    return mean
