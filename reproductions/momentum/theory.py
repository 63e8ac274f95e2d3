"""Theorems 6.4 and 6.5 from measured constants: their bounds, and the parameters they prescribe."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from fedrl.envs.control import random_mdp

G, M = math.sqrt(2), 0.5
"""Bounds on the gradient and the Hessian of log π of a softmax table (Assumption 6.1)."""


@dataclass(frozen=True)
class Constants:
    """What the theorems are made of, for softmax tables and rewards in [0, 1].

    W is the largest weight variance (6.3), σ² the gradient's variance (6.2), Δ the `gap` to the
    best J, G₀ the mean ‖∇J_i(θ_0)‖².
    """

    horizon: int
    gamma: float
    variance: float
    weight_variance: float
    gap: float
    first: float = 1.0

    @property
    def _each(self) -> tuple[float, float, float, float]:
        """L, L_g and C_g of Proposition 1, and C_w of Lemma B.2."""
        h, scale = self.horizon, self.horizon / (1 - self.gamma)
        weight = h * (2 * h * G * G + M) * (self.weight_variance + 1)
        return scale * (M + h * G * G), scale * M, scale * G, weight

    @property
    def smoothness(self) -> float:
        """L̄ = max(L, L̃_1, L̃_2, L̃_3) of Proposition 1, Lemmas B.2, C.1 and C.2."""
        smooth, lipschitz, bound, weight = self._each
        first = math.sqrt(smooth**2 + 24 * weight * bound**2 + 6 * lipschitz**2)
        second = math.sqrt(lipschitz**2 + 2 * weight * bound**2)
        third = math.sqrt(2 * weight * bound**2 + 2 * lipschitz**2)
        return max(smooth, first, second, third)

    @property
    def hessian_smoothness(self) -> float:
        """L̂ = √(2L² + 4L̃_4²) of Theorem 6.5, with L̃_4 of Proposition 2."""
        fourth = (self.horizon**2 * G**4 + M**2) / (1 - self.gamma) ** 4
        return math.sqrt(2 * self._each[0] ** 2 + 4 * fourth)

    def of(self, method: str) -> float:
        return self.hessian_smoothness if method == "fedhapg-m" else self.smoothness

    def terms(self, clients: int, steps: int, rounds: int, method: str = "") -> tuple[float, float]:
        """(L̄Δσ/(NKR))^{2/3} and L̄Δ/R: what falls with N, and what does not."""
        product = self.of(method) * self.gap
        noise = (product * math.sqrt(self.variance) / (clients * steps * rounds)) ** (2 / 3)
        return noise, product / rounds

    def bound(self, clients: int, steps: int, rounds: int, method: str = "") -> float:
        """The right side of Eq. (6), or (7), without its numeric constant."""
        return sum(self.terms(clients, steps, rounds, method))

    def prescribed(self, clients: int, steps: int, rounds: int, method: str = "") -> Prescribed:
        """Theorem C.4's parameters, or D.4's, with 1 for the constants that they do not name."""
        smooth, product = self.of(method), clients * steps
        growth = product * (smooth * self.gap) ** 2 / (self.variance * rounds) ** 2
        beta = min(1.0, growth ** (1 / 3))
        if method == "fedhapg-m":  # D.4 has L̂ in both, C.4 L in the first and L̄ in the second
            first, divisor = smooth, 72
        else:
            first, divisor = self._each[0], 162
        server_lr = min(1 / (24 * first), math.sqrt(beta * product / divisor) / smooth)
        reach = min(
            math.sqrt(smooth * self.gap / (self.first * server_lr * smooth * rounds)),
            math.sqrt(beta / clients),
            (beta / product) ** 0.25,
        )
        batch = math.ceil(steps / (rounds * beta**2))
        return Prescribed(beta, reach / (steps * smooth), server_lr, batch)


@dataclass(frozen=True)
class Prescribed:
    """β, η, λ and B of a theorem."""

    beta: float
    lr: float
    server_lr: float
    initial_trajectories: int


def exact_variance(
    policy: np.ndarray, kernel: np.ndarray, reward: np.ndarray, initial: np.ndarray, gamma: float,
    horizon: int,
) -> float:  # fmt: skip
    """E ‖g(τ|θ) − ∇J(θ)‖² of a softmax table, by all trajectories of a short horizon."""
    states, actions = policy.shape
    total, mean = 0.0, np.zeros_like(policy)
    pairs = list(itertools.product(range(states), range(actions)))
    for path in itertools.product(pairs, repeat=horizon):
        chance, before = float(initial[path[0][0]]), None
        for s, a in path:
            chance *= 1.0 if before is None else float(kernel[before][s])
            chance *= float(policy[s, a])
            before = (s, a)
        paid = [gamma**t * float(reward[pair]) for t, pair in enumerate(path)]
        g = np.zeros_like(policy)
        for t, (s, a) in enumerate(path):
            g[s] -= sum(paid[t:]) * policy[s]
            g[s, a] += sum(paid[t:])
        total += chance * float((g**2).sum())
        mean += chance * g
    return total - float((mean**2).sum())


def measured_constants(
    settings: random_mdp.Settings, clients: int, seeds: int, weight_variance: float
) -> Constants:
    """Of the worlds of these seeds at θ_0, the uniform policy: the largest σ², the mean Δ and G₀.

    Δ is to the mean of every client's own best J, which no common policy passes.
    """
    variances, gaps, firsts = [], [], []
    policy = np.full((settings.states, settings.actions), 1 / settings.actions)
    for seed in range(seeds):
        world = random_mdp.World(settings, clients, seed)
        known = (world.kernels, world.rewards, world.initial, settings.gamma)
        now = random_mdp.performance(policy, *known).mean()
        gaps.append(float(random_mdp.upper_bound(*known) - now))
        slopes = random_mdp.gradient(np.broadcast_to(policy, world.kernels.shape[:-1]), *known)
        firsts.append(float((slopes**2).sum((-2, -1)).mean()))
        variances += [
            exact_variance(policy, kernel, *known[1:], settings.horizon) for kernel in world.kernels
        ]
    gap, first = float(np.mean(gaps)), float(np.mean(firsts))
    return Constants(settings.horizon, settings.gamma, max(variances), weight_variance, gap, first)
