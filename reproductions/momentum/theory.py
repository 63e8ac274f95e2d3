"""Theorem 6.4's bound from measured constants."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What Theorem 6.4 is made of, for softmax tables and rewards in [0, 1].

    G and M bound the gradient and the Hessian of log π (Assumption 6.1): √2 and 1/2. W is the
    largest weight variance seen (6.3), σ² the gradient's variance as measured (6.2).
    """

    horizon: int
    gamma: float
    variance: float
    weight_variance: float
    gap: float

    @property
    def smoothness(self) -> float:
        """L̄ = max(L, L̃_1, L̃_2, L̃_3) of Proposition 1, Lemmas B.2, C.1 and C.2."""
        g, m, h = math.sqrt(2), 0.5, self.horizon
        scale = h / (1 - self.gamma)
        smooth, lipschitz, bound = scale * (m + h * g * g), scale * m, scale * g
        weight = h * (2 * h * g * g + m) * (self.weight_variance + 1)
        first = math.sqrt(smooth**2 + 24 * weight * bound**2 + 6 * lipschitz**2)
        second = math.sqrt(lipschitz**2 + 2 * weight * bound**2)
        third = math.sqrt(2 * weight * bound**2 + 2 * lipschitz**2)
        return max(smooth, first, second, third)

    def bound(self, clients: int, steps: int, rounds: int) -> float:
        """(L̄Δσ/(NKR))^{2/3} + L̄Δ/R, the right side of Eq. (6) without its numeric constant."""
        product = self.smoothness * self.gap
        noise = (product * math.sqrt(self.variance) / (clients * steps * rounds)) ** (2 / 3)
        return noise + product / rounds
