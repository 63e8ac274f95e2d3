"""Policy-gradient estimators of the momentum paper, for a minibatch of whole trajectories.

Shapes: M trajectories, T steps at most, real steps marked by a mask. Names and symbols:

    psi                 Ψ_t = Σ_{h≥t} γ^h r_h, reward-to-go with the discount counted from 0
    gradient            g(τ|θ) = Σ_t Ψ_t ∇log π_θ(a_t|s_t)
    log_weight          log w(τ|θ',θ) = Σ_t [log π_θ'(a_t|s_t) − log π_θ(a_t|s_t)], real steps only
    svrpg               Eq. (4), FedSVRPG-M
    hapg                Eq. (5) inside Algorithm 2, FedHAPG-M

Everything stays in log space until the last exp, and the Hessian-vector product is forward over
reverse differentiation: O(T d), no Hessian, no finite differences.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedrl.algorithms.momentum.policies import Array, Params, Policy
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


def shortened(u: Params, longest: float) -> Params:
    """u, scaled down to the norm `longest` where it is longer."""
    norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(u)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, longest / (norm + 1e-12)), u)


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
