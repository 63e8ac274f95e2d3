"""Policy-gradient estimators for a minibatch of whole trajectories.

Shapes: M trajectories, T steps at most, real steps marked by a mask. Names and symbols:

    psi                 Ψ_t = Σ_{h≥t} γ^h r_h, reward-to-go with the discount counted from 0
    gradient            g(τ|θ) = Σ_t Ψ_t ∇log π_θ(a_t|s_t)
    log_weight          log w(τ|θ',θ) = Σ_t [log π_θ'(a_t|s_t) − log π_θ(a_t|s_t)], real steps only

Everything stays in log space until the last exp.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedrl.algorithms.policy_gradient.policies import Array, Params, Policy
from fedrl.envs.interfaces import Trajectories

Batch = Trajectories[jax.Array]
"""M trajectories of T steps: observations [M,T,…], actions [M,T,…], rewards and mask [M,T]."""


def rewards_to_go(rewards: Array, mask: Array, gamma: float, scale: float = 1.0) -> Array:
    """Ψ [M,T]; `scale` multiplies the rewards."""
    steps = jnp.arange(rewards.shape[-1])
    discounted = scale * rewards * mask * gamma**steps
    return jnp.cumsum(discounted[..., ::-1], -1)[..., ::-1]


def standardized(psi: Array, mask: Array) -> Array:
    """Ψ shifted and scaled to mean 0 and variance 1 over the real steps of the minibatch."""
    count = mask.sum()
    mean = (psi * mask).sum() / count
    variance = ((psi - mean) ** 2 * mask).sum() / count
    return (psi - mean) / (jnp.sqrt(variance) + 1e-6)


def per_step(psi: Array, mask: Array) -> Array:
    """Ψ divided by the minibatch's mean length: g becomes a mean over steps instead of a sum."""
    return psi * (mask.shape[0] / mask.sum())


def log_likelihood(policy: Policy, theta: Params, batch: Batch) -> Array:
    """Σ_t log π_θ(a_t|s_t) per trajectory [M]: log p(τ|θ) without the terms that θ cannot move."""
    return (policy.log_prob(theta, batch.observations, batch.actions) * batch.mask).sum(-1)


def surrogate(policy: Policy, theta: Params, batch: Batch, psi: Array) -> Array:
    """Σ_t Ψ_t log π_θ(a_t|s_t) per trajectory [M]; its gradient is g(τ|θ)."""
    log_prob = policy.log_prob(theta, batch.observations, batch.actions)
    return (log_prob * batch.mask * psi).sum(-1)


def gradient(
    policy: Policy, theta: Params, batch: Batch, psi: Array, weight: Array | float = 1.0
) -> Params:
    """Mean over the minibatch of weight · g(τ|θ); the weight is a constant."""
    weight = jax.lax.stop_gradient(weight)
    return jax.grad(lambda th: (weight * surrogate(policy, th, batch, psi)).mean())(theta)


def importance_weight(
    policy: Policy, target: Params, behaviour: Params, batch: Batch, clip: float
) -> tuple[Array, Array]:
    """w(τ|target, behaviour) [M], at most `clip` if that is positive, and which were clipped."""
    log_weight = log_likelihood(policy, target, batch) - log_likelihood(policy, behaviour, batch)
    return capped_exp(log_weight, clip)


def capped_exp(log_weight: Array, clip: float) -> tuple[Array, Array]:
    weight = jnp.exp(log_weight)
    if clip <= 0:
        return weight, jnp.zeros_like(weight)
    return jnp.minimum(weight, clip), (weight > clip).astype(weight.dtype)


def shortened(u: Params, longest: float) -> Params:
    """u, scaled down to the norm `longest` where it is longer."""
    norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(u)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, longest / (norm + 1e-12)), u)
