"""FedNova: clients that take more local steps do not pull the server further to their side.

Paper: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization" (NeurIPS 2020), Eq. (6) and (7) with plain local SGD: a_i = (1, …, 1), ‖a_i‖₁ = K_i.

    client    K_i steps of u = g(θ);  sends d_i = Δ_i / K_i and K_i
    server    θ_{r+1} = θ_r + τ_eff · mean d_i,   τ_eff = mean K_i

The mean of Δ_i itself would climb Σ K_i J_i, another objective than Σ J_i. With equal K_i it is
PAvg (to rounding; to the last bit where K is a power of two).

Where we differ: p_i = 1/|S|, all clients weigh the same. τ_eff is kept between 1 and the most steps
that the settings allow, whatever clients say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrl.algorithms.policy_gradient import LocalStep, PolicyGradient, Settings
from fedrl.core import tree
from fedrl.core.types import Tensors, Word

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Array, Params


@dataclass(frozen=True)
class FedNovaSettings(Settings):
    """Settings of FedNova."""

    # The method.
    name: Word = "fednova"


class FedNova(PolicyGradient):
    """Policy-gradient averaging that is normalised by each client's number of steps."""

    Settings = FedNovaSettings
    settings: FedNovaSettings

    def direction(self, now: LocalStep) -> Params:
        return now.gradient()

    def finish(
        self, start: Params, last: Params, server: Tensors, client: Tensors, steps: Array
    ) -> tuple[Tensors, Tensors]:
        each = tree.map(lambda there, here: (there - here) / steps, last, start)
        return {"theta": each, "steps": 1.0 * steps}, client

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        steps = np.clip(mean["steps"], 1, self.settings.most_steps)  # τ_eff
        change = tree.map(lambda d: (steps * d).astype(d.dtype), mean["theta"])
        return super().step(state, change, round)
