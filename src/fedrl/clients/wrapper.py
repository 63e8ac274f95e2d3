"""An algorithm some of whose clients behave otherwise: what all such wrappers pass on unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedrl.core.types import (
    Algorithm,
    Bounded,
    Metrics,
    SendsParameters,
    Spec,
    Tensors,
    WarmUp,
    Weighs,
)


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
        if isinstance(algorithm, Weighs):
            self.heaviest = algorithm.heaviest

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

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        return self.algorithm.evaluate(states, owners, round, seed)

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        return self.algorithm.evaluate_clients(state, seed, episodes)
