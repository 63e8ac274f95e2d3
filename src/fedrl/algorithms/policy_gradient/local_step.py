"""What a method's `direction` is given: one client's local step, traced by JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrl.core.types import Tensors

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.gradient_estimators import Batch
    from fedrl.algorithms.policy_gradient.policies import Array, Params, Policy


@dataclass(frozen=True)
class LocalStep:
    """Local step k of one client: where θ is, what is known, and the step's own trajectories.

    All arrays are traced: write with `jax.numpy`, and branch on settings, never on values. There is
    no axis of clients: the base adds it.
    """

    # θ_{r,k}, by the names of the policy's parameters.
    theta: Params
    # θ_r, which the server sent.
    start: Params
    # What the server sent beside θ_r.
    server: Tensors
    # What the client keeps from round to round.
    client: Tensors
    # k, from 0.
    k: Array | int
    # M trajectories, [M,T,…]: observations, actions, rewards, and a mask of the real steps.
    batch: Batch
    # Ψ_t [M,T], the discounted rewards-to-go, scaled or standardised as the settings say.
    psi: Array
    # Where the trajectories were drawn; θ_{r,k} unless the method samples elsewhere.
    at: Params
    # π: `log_prob(theta, observations, actions)`.
    policy: Policy

    def gradient(self, at: Params | None = None, weight: Array | float = 1.0) -> Params:
        """Mean over the minibatch of weight · g(τ|θ), at θ_{r,k} or elsewhere; weight [M]."""
        from fedrl.algorithms.policy_gradient import gradient_estimators

        where = self.theta if at is None else at
        return gradient_estimators.gradient(self.policy, where, self.batch, self.psi, weight)

    def importance_weight(self, target: Params, clip: float = 0.0) -> Array:
        """w(τ|target) [M]: how much likelier a trajectory is under `target` than where it was
        drawn, at most `clip` if that is positive."""
        from fedrl.algorithms.policy_gradient import gradient_estimators

        weight, _ = gradient_estimators.importance_weight(
            self.policy, target, self.at, self.batch, clip
        )
        return weight
