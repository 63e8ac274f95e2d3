"""FedNova: clients that take more local steps do not pull the server further to their side.

Paper: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization" (NeurIPS 2020), Eq. (6) and (7) with plain local SGD: a_i = (1, …, 1), ‖a_i‖₁ = K_i.

    client    K_i steps of u = g(θ);  sends d_i = Δ_i / K_i
    server    θ_{r+1} = θ_r + τ_eff · mean d_i,   τ_eff = mean K_i of all clients

The mean of Δ_i itself would climb Σ K_i J_i, another objective than Σ J_i. With equal K_i it is
PAvg (to rounding; to the last bit where K is a power of two).

Where we differ: p_i = 1/|S|, all clients weigh the same. The server knows every K_i from the
settings, so no client sends it: a bound on an update's length (`privacy.clip`), distances between
updates and rehearsed lies would otherwise be about K_i, which is hundreds of times longer than d_i.
τ_eff is over all clients, also where a round asks some of them or one that is alone.
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
        return tree.map(lambda there, here: (there - here) / steps, last, start), client

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        each = self.steps_of(state, range(len(self.client_env_ids)))
        steps = np.float32(self.settings.local_steps if each is None else each.mean())  # τ_eff
        change = tree.map(lambda d: (steps * d).astype(d.dtype), mean)
        return super().step(state, change, round)
