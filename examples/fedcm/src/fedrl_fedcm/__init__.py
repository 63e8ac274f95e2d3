"""FedCM: client-level momentum, for policy gradients.

Paper: "FedCM: Federated Learning with Client-level Momentum" (Xu et al., 2021), Algorithm 2.

    server    broadcast θ_r and Δ_r, the mean direction of the round before (Δ_0 = 0)
      client  θ ← θ_r; K times: u = α g(θ) + (1 − α) Δ_r, θ ← θ + η u; send θ − θ_r
    server    Δ_{r+1} = mean (θ − θ_r) / (ηK), θ_{r+1} = θ_r + λ Δ_{r+1}

α = 1 is PAvg. Where we differ: g is a policy gradient, uphill.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from fedrl.algorithms.policy_gradient import LocalStep, PolicyGradient, Settings
from fedrl.core.types import Tensors, UserError


@dataclass(frozen=True)
class FedCMSettings(Settings):
    """Local steps that lean towards where all went last."""

    # α in (0, 1]: the share of the client's own gradient; 1 is PAvg.
    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha <= 1:
            raise UserError(f"algorithm.alpha is {self.alpha}; it must lie in (0, 1]")


class FedCM(PolicyGradient):
    """policy gradients with client-level momentum (Xu et al. 2021)"""

    Settings = FedCMSettings
    settings: FedCMSettings

    def server_tensors(self, theta: Tensors) -> Tensors:
        return {"last": jax.tree.map(np.zeros_like, theta)}  # Δ_0

    def direction(self, now: LocalStep) -> Tensors:
        share = self.settings.alpha
        return jax.tree.map(
            lambda g, last: share * g + (1 - share) * last, now.gradient(), now.server["last"]
        )

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return {**super().step(state, mean, round), "last": self.normalized(mean)}
