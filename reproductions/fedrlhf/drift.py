"""Where clients drift apart: two kinds of them, for whom Theorems 4.1 and 4.2 promise too much.

J_k(θ) = −½ a_k (θ − c_k)² with exact gradients, so σ = 0, and no feedback. With η = 1/(Lτ) a
client's τ steps are θ ↦ c_k + q_k (θ − c_k), q_k = (1 − a_k/(Lτ))^τ. The mean of these maps settles
where Σ (1 − q_k)(θ − c_k) = 0. The best θ has a_k in the place of 1 − q_k: with τ = 1 they are the
same up to a factor, with more steps they are not, however many clients of each kind there are. The
theorems' terms for K clients go to 0 all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedrl.algorithms.fedrlhf.ratings.bound import BoundRow, Constants, Path, bound
from fedrl.algorithms.fedrlhf.ratings.lemmas import Samples, sample_complexity

CURVES, CENTRES = np.array([1.0, 0.1]), np.array([1.0, -1.0])
"""a_k and c_k of the two kinds."""
BEST = float((CURVES * CENTRES).sum() / CURVES.sum())
STEPS = 50
ROUNDS = 4000


def gap(theta: np.ndarray | float) -> np.ndarray:
    """J(θ*) − J(θ)."""
    return np.asarray(0.5 * CURVES.mean() * (theta - BEST) ** 2)


def settled(steps: int = STEPS) -> float:
    """The gap that is left after any number of rounds."""
    moved = 1 - (1 - CURVES / (CURVES.max() * steps)) ** steps
    return float(gap(float((moved * CENTRES).sum() / moved.sum())))


def run(clients: int, rounds: int, steps: int = STEPS) -> tuple[Constants, Path]:
    """From θ_0 = 0, with half of the clients of either kind."""
    kept = (1 - CURVES / (CURVES.max() * steps)) ** steps
    theta = np.zeros(rounds + 1)
    for t in range(rounds):
        theta[t + 1] = (CENTRES + kept * (theta[t] - CENTRES)).mean()
    before = theta[:-1]
    slopes = CURVES.mean() * (before - BEST)
    # A client's steps lead towards its centre: its gradient is longest where it begins.
    longest = float(np.abs(CURVES * (before[:, None] - CENTRES)).max())
    averaged = np.cumsum(before) / np.arange(1, rounds + 1)
    constants = Constants(
        float(CURVES.max()), float(CURVES.mean()), longest, 0.0, float(gap(0.0)), 0.0, clients,
        steps,
    )  # fmt: skip
    return constants, Path(gap(theta), slopes**2, gap(averaged))


def theorem_4_1(clients: int = 10_000) -> BoundRow:
    """After the last round: what is left, and what the theorem allows."""
    return bound(*run(clients, ROUNDS))[-1]


class Asked(NamedTuple):
    """Theorem 4.2 with all that it asks for: ε, its T and K, and the mean gap that came out."""

    epsilon: float
    samples: Samples
    gap: float


def theorem_4_2() -> Asked:
    """For half of what is left at the end."""
    epsilon = settled() / 2
    constants, _ = run(2, ROUNDS)
    asked = sample_complexity(constants, epsilon)
    _, path = run(asked.clients, asked.rounds)
    return Asked(epsilon, asked, float(path.gaps[:-1].mean()))
