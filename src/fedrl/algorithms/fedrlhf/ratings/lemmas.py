"""FedRLHF's Lemmas 4.1 and 4.2 and Theorem 4.2 beside a run, with its measured constants.

Paper: section 4.2 and its proofs (appendices A and B). With M = G² + σ² and steps of size η:

    Lemma 4.1     E‖θ^k_{t+1} − θ_t‖² ≤ η²τ² M
    Lemma 4.2     E[J(θ_{t+1})] − J(θ_t) ≥ ητ(1 − Lητ/2) ‖∇J(θ_t)‖² − L/2 · η²τ²/K · M − λ H_max
    Theorem 4.2   J(θ*) − E[J] ≤ ε  if  T ≥ 3L (J(θ*) − J(θ_0)) / (με),  K ≥ 3M / (2με)
                  and λ H_max ≤ με / (3L): a third of ε for each term of Theorem 4.1; N = K T

Lemma 4.1 is right as it is. Lemma 4.2 drops that clients drift apart in τ > 1 steps ("for small η
of higher order"), though with η = 1/(Lτ) it is of the order of the rest, and subtracts λ H_max
although H is part of J. `repaired` is without the latter and with the former:

    E[J(θ_{t+1})] − J(θ_t) ≥ ητ/2 · (‖∇J(θ_t)‖² − L²η² (τ − 1)(2τ − 1)/6 · M) − L/2 · η²τ²/K · M

for ητ ≤ 1/L (`bound` has its derivation). Theorem 4.2 counts one sample per client and round, where
a round takes τ minibatches; here N is counted as the theorem does. It follows from Theorem 4.1, and
with τ > 1 needs the drift's term, too, which no T and no K makes small.

The expectations are means over `draws` of the same round: from a θ_t of the run, every client takes
its τ steps on other minibatches with other actions each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings.algorithm import PARTS, FedRLHF
from fedrl.algorithms.fedrlhf.ratings.bound import (
    BoundRow,
    Constants,
    Floats,
    Walk,
    bound,
    walk,
)
from fedrl.core import seeding
from fedrl.core.types import Job, Tensors


def distance_bound(constants: Constants, lr: float | None = None) -> float:
    """Lemma 4.1's, of the mean squared distance of a client from θ_t."""
    lr = constants.lr if lr is None else lr
    return (lr * constants.steps) ** 2 * (constants.gradient**2 + constants.noise**2)


def least_gain(constants: Constants, slope: float, lr: float | None = None) -> float:
    """Lemma 4.2's, of J in a round; `slope` is ‖∇J(θ_t)‖²."""
    lr = constants.lr if lr is None else lr
    far = lr * constants.steps
    first = far * (1 - constants.smoothness * far / 2) * slope
    return first - _noise(constants, lr) - constants.feedback


def repaired_gain(constants: Constants, slope: float, lr: float | None = None) -> float:
    """The same with the clients' drift and without λ H_max; for ητ ≤ 1/L."""
    lr = constants.lr if lr is None else lr
    steps, moment = constants.steps, constants.gradient**2 + constants.noise**2
    squares = (steps - 1) * (2 * steps - 1) / 6  # mean of i², i < τ
    drift = (constants.smoothness * lr) ** 2 * squares * moment
    return lr * steps / 2 * (slope - drift) - _noise(constants, lr)


def _noise(constants: Constants, lr: float) -> float:
    return constants.smoothness / 2 * distance_bound(constants, lr) / constants.clients


class Samples(NamedTuple):
    """What Theorem 4.2 asks for."""

    rounds: int  # T
    clients: int  # K
    feedback: float  # the largest λ H_max that it allows

    @property
    def total(self) -> int:
        """N."""
        return self.rounds * self.clients


def sample_complexity(constants: Constants, epsilon: float) -> Samples:
    """To come within ε of the best, by the numbers of the theorem's proof."""
    moment = constants.gradient**2 + constants.noise**2
    rounds = 3 * constants.smoothness * constants.start / (constants.pl * epsilon)
    clients = 3 * moment / (2 * constants.pl * epsilon)
    most = constants.pl * epsilon / (3 * constants.smoothness)
    return Samples(math.ceil(rounds), math.ceil(clients), most)


class Look(NamedTuple):
    """One round, drawn again and again from the same θ_t."""

    round: int
    slope: float  # ‖∇J(θ_t)‖²
    distances: Floats  # ‖θ^k − θ_t‖² [K, draws]
    gains: Floats  # J(θ_{t+1}) − J(θ_t) [draws]


class LemmasMeasured(NamedTuple):
    constants: Constants
    rows: list[BoundRow]
    looks: list[Look]


def measure(
    algorithm: FedRLHF, rounds: int, seed: int, looked: Sequence[int], draws: int
) -> LemmasMeasured:
    """A run of the theorem's algorithm as `bound.measure` does it, and draws of these rounds."""
    constants, path, way = walk(algorithm, rounds, seed, looked)
    looks = [
        _look(way, number, theta, float(path.slopes[number - 1]), seed, draws)
        for number, theta in way.kept.items()
    ]
    return LemmasMeasured(constants, bound(constants, path), looks)


def _look(way: Walk, number: int, theta: Tensors, slope: float, seed: int, draws: int) -> Look:
    before = way.gap(theta)
    distances, gains = np.zeros((len(way.objectives), draws)), np.zeros(draws)
    for draw in range(draws):
        updates = []
        for row, objective in enumerate(way.objectives):
            client = objective.client
            job = Job(client, theta, None, seeding.derive(seed, f"draw/{draw}", number, client))
            here = way.stepped(job, objective)
            moved = {name: here[name] - theta[name] for name in PARTS}
            distances[row, draw] = sum(float((m.astype(np.float64) ** 2).sum())
                                       for m in moved.values())  # fmt: skip
            updates.append((moved, 1.0))
        after = way.algorithm.step(theta, aggregate.weighted(updates), number)
        gains[draw] = before - way.gap(after)
    return Look(number, slope, distances, gains)
