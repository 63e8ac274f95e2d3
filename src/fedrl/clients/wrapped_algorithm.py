"""An algorithm some of whose clients behave otherwise: what all such wrappers pass on unchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedrl.core.abilities import (
    Batched,
    Bounded,
    HeldApart,
    SendsParameters,
    WarmUp,
    Weighs,
    server_step,
)
from fedrl.core.own_data import Agrees
from fedrl.core.types import Algorithm, Job, Metrics, Result, Spec, Tensors


class Wrapped:
    """Everything but the clients' work is the algorithm's own. Wrappers add `local`.

    `local_many` is not passed on: it would go round the wrapper's `local`.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.initial_exchange = algorithm.initial_exchange
        self.reports = algorithm.reports
        if isinstance(algorithm, Bounded):
            self.ranges = algorithm.ranges
        if isinstance(algorithm, SendsParameters):
            self.sends_parameters = algorithm.sends_parameters
        if isinstance(algorithm, HeldApart):
            self.held_apart, self.counts = algorithm.held_apart, algorithm.counts
            self.without_counts = algorithm.without_counts
        if isinstance(algorithm, Weighs):
            self.heaviest = algorithm.heaviest
        if isinstance(algorithm, Agrees):
            self.agreement = algorithm.agreement

    def warm_up(self) -> None:
        if isinstance(self.algorithm, WarmUp):
            self.algorithm.warm_up()

    def init(self, seed: int) -> Tensors:
        return self.algorithm.init(seed)

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return self.algorithm.broadcast(state, round)

    def declare(self, broadcast: Tensors) -> Mapping[str, Spec]:
        return self.algorithm.declare(broadcast)

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return self.algorithm.step(state, mean, round)

    def step_partial(self, state: Tensors, mean: Tensors, round: int, share: float) -> Tensors:
        return server_step(self.algorithm, state, mean, round, share)

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        return self.algorithm.evaluate(states, owners, round, seed)

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        return self.algorithm.evaluate_clients(state, seed, episodes)


class ResultWrapper(Wrapped, ABC):
    """Changes what clients send after their work, also where that is done in one call."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__(algorithm)
        if isinstance(algorithm, Batched):  # the others stream results, one update at a time
            self.local_many: Callable[[Sequence[Job]], list[Result]] = self._many

    @abstractmethod
    def sent(self, job: Job, result: Result) -> Result:
        """What leaves the client instead of the result of its work."""

    def local(self, job: Job) -> Result:
        return self.sent(job, self.algorithm.local(job))

    def _many(self, jobs: Sequence[Job]) -> list[Result]:
        assert isinstance(self.algorithm, Batched)
        results = self.algorithm.local_many(jobs)
        return [self.sent(job, result) for job, result in zip(jobs, results)]
