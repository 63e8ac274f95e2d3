"""Directions of the momentum paper, for a minibatch of whole trajectories.

    svrpg               Eq. (4), FedSVRPG-M
    hapg                Eq. (5) inside Algorithm 2, FedHAPG-M

Names and symbols are those of `policy_gradient.gradient_estimators`. The Hessian-vector product is
forward over reverse differentiation: O(T d), no Hessian, no finite differences.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedrl.algorithms.policy_gradient.gradient_estimators import (
    Batch,
    capped_exp,
    gradient,
    importance_weight,
    log_likelihood,
)
from fedrl.algorithms.policy_gradient.policies import Array, Params, Policy


def svrpg(
    policy: Policy,
    theta: Params,
    previous: Params,
    direction: Params,
    batch: Batch,
    psi: Array,
    beta: float,
    clip: float,
) -> tuple[Params, Array, Array]:
    """u_{r,k} of Eq. (4) for trajectories drawn at θ_{r,k}; also the weights and what was clipped.

    β = 1 never touches θ_{r-1} or u_r: it is PAvg to the last bit.
    """
    if beta == 1.0:
        ones = jnp.ones(psi.shape[0], psi.dtype)
        return gradient(policy, theta, batch, psi), ones, jnp.zeros_like(ones)

    def log_prob(params: Params) -> Array:
        return policy.log_prob(params, batch.observations, batch.actions) * batch.mask

    # Both parameters in one pass forwards and one backwards: twice the batch, half the calls.
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), theta, previous)
    (at_theta, at_previous), pull_back = jax.vjp(jax.vmap(log_prob), both)
    weight, clipped = capped_exp((at_previous - at_theta).sum(-1), clip)
    (gradients,) = pull_back(jnp.stack([psi, weight[:, None] * psi]) / len(psi))
    u = jax.tree.map(lambda g, u: g[0] + (1 - beta) * (u - g[1]), gradients, direction)
    return u, weight, clipped


def interpolate(theta: Params, previous: Params, alpha: Array) -> Params:
    """θ(α) = α θ_{r-1} + (1-α) θ_{r,k}, where FedHAPG-M samples."""
    return jax.tree.map(lambda a, b: alpha * b + (1 - alpha) * a, theta, previous)


def hessian_correction(policy: Policy, at: Params, v: Params, batch: Batch, psi: Array) -> Params:
    """Λ of Eq. (5) at θ(α): an unbiased estimate of ∇J(θ_{r,k}) − ∇J(θ_{r-1})."""
    _, score = jax.jvp(lambda th: log_likelihood(policy, th, batch), (at,), (v,))  # ⟨∇log p, v⟩ [M]
    first = gradient(policy, at, batch, psi, score)
    _, second = jax.jvp(lambda th: gradient(policy, th, batch, psi), (at,), (v,))  # ∇⟨g, v⟩
    return jax.tree.map(jnp.add, first, second)


def hapg(
    policy: Policy,
    theta: Params,
    previous: Params,
    direction: Params,
    at: Params,
    batch: Batch,
    psi: Array,
    beta: float,
    clip: float,
) -> tuple[Params, Array, Array]:
    """u_{r,k} of Algorithm 2 for trajectories drawn at θ(α) = `at`."""
    weight, clipped = importance_weight(policy, theta, at, batch, clip)
    here = gradient(policy, theta, batch, psi, weight)
    v = jax.tree.map(jnp.subtract, theta, previous)
    correction = hessian_correction(policy, at, v, batch, psi)
    u = jax.tree.map(lambda g, u, c: beta * g + (1 - beta) * (u + c), here, direction, correction)
    return u, weight, clipped
