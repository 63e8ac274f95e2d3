"""FedProx: local steps that a spring pulls back to where the round began.

Paper: Li et al., "Federated Optimization in Heterogeneous Networks" (MLSys 2020), Algorithm 2.

    client    maximise J_i(θ) − μ/2 ‖θ − θ_r‖²  by K_i steps of  u = g(θ) − μ (θ − θ_r)
    server    θ_{r+1} = θ_r + mean Δ

Where we differ: the paper leaves the local solver open and measures how exactly it solves; here it
is K_i steps of plain policy gradients, as many as each client has time for (`local_steps_spread`).
Its cohorts are drawn by the size of clients' data, ours uniformly, and the server's mean is plain.
μ = 0 is PAvg to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrl.algorithms.policy_gradient import LocalStep, PolicyGradient, Settings
from fedrl.core import tree
from fedrl.core.limits import not_negative
from fedrl.core.types import Word

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Params


@dataclass(frozen=True)
class FedProxSettings(Settings):
    """Settings of FedProx."""

    # The method.
    name: Word = "fedprox"
    # μ: how strongly a client is pulled back to the server's parameters; 0 is PAvg.
    mu: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "algorithm.", "mu")


class FedProx(PolicyGradient):
    """Policy-gradient averaging with a proximal term."""

    Settings = FedProxSettings
    settings: FedProxSettings

    def direction(self, now: LocalStep) -> Params:
        gradient, mu = now.gradient(), self.settings.mu
        if mu == 0:
            return gradient
        return tree.map(lambda g, x, x0: g - mu * (x - x0), gradient, now.theta, now.start)
