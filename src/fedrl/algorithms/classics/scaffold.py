"""SCAFFOLD: every client corrects its steps by how its gradient differs from everybody's.

Paper: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning"
(ICML 2020), Algorithm 1 with option II.

    server    holds c, broadcasts θ_r and c
    client    keeps c_i; K_i steps of  u = g(θ) − c_i + c
              c_i⁺ = c_i − c + (θ_{r,K} − θ_r) / (η K_i);  sends Δ_i = θ_{r,K} − θ_r and c_i⁺ − c_i
    server    θ_{r+1} = θ_r + mean Δ_i,   c ← c + |S|/N · mean (c_i⁺ − c_i)

c and all c_i start at 0, so c stays the mean of all c_i, of clients that were never asked too: to
rounding, as long as the rule of aggregation is the mean and nothing changes what is sent
(`privacy.clip` and noise reach c, and not the c_i that clients keep). With one client c_i = c, and
it is PAvg.

Where we differ: signs, for we go uphill; |S| are the clients whose updates were used, so that one
that failed changes nothing. A cap on the direction (`direction_clip`) is on u with its correction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrl.algorithms.policy_gradient import LocalStep, PolicyGradient, Settings
from fedrl.core import tree
from fedrl.core.types import Tensors, Word

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Array, Params


@dataclass(frozen=True)
class ScaffoldSettings(Settings):
    """Settings of SCAFFOLD."""

    # The method.
    name: Word = "scaffold"


class Scaffold(PolicyGradient):
    """Policy-gradient averaging with control variates."""

    Settings = ScaffoldSettings
    settings: ScaffoldSettings

    def server_tensors(self, theta: Tensors) -> Tensors:
        return {"control": tree.zeros_like(theta)}  # c

    def client_tensors(self, theta: Tensors) -> Tensors:
        return {"control": tree.zeros_like(theta)}  # c_i

    def direction(self, now: LocalStep) -> Params:
        own, all_clients = now.client["control"], now.server["control"]
        return tree.map(lambda g, ci, c: g - ci + c, now.gradient(), own, all_clients)

    def finish(
        self, start: Params, last: Params, server: Tensors, client: Tensors, steps: Array
    ) -> tuple[Tensors, Tensors]:
        scale = 1.0 / (self.settings.lr * steps)
        change = tree.map(lambda there, here: there - here, last, start)
        before, control = client["control"], server["control"]
        after = tree.map(lambda ci, c, d: ci - c + scale * d, before, control, change)
        gained = tree.map(lambda new, old: new - old, after, before)
        return {"theta": change, "control": gained}, {"control": after}

    def step_partial(self, state: Tensors, mean: Tensors, round: int, share: float) -> Tensors:
        """`share` is |S|/N."""
        control = tree.map(
            lambda c, gained: (c + share * gained).astype(c.dtype),
            state["control"],
            mean["control"],
        )
        return {**super().step(state, mean["theta"], round), "control": control}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return self.step_partial(state, mean, round, 1.0)
