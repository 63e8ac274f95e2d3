"""One local step of policies that are networks, for a batch of pairs: u_{r,k}, and θ + η u_{r,k}.

What JAX worlds and host worlds share once trajectories are there; all of it is traced by JAX.
Shapes: B pairs, M trajectories of each, T steps at most.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.momentum import gradient_estimators as estimators
from fedrl.algorithms.momentum.gradient_estimators import Array, Batch
from fedrl.algorithms.momentum.local_steps import Start
from fedrl.algorithms.momentum.policies import Params, Policy
from fedrl.algorithms.momentum.settings import Settings
from fedrl.core.types import Tensors


def rewards_to_go(batch: Batch, settings: Settings, gamma: float) -> Array:
    """Ψ [B,M,T] for every pair, scaled or standardised as the settings say."""
    psi = estimators.rewards_to_go(batch.rewards, batch.mask, gamma, settings.return_scale)
    return jax.vmap(estimators.standardized)(psi, batch.mask) if settings.standardize else psi


def local_step(
    policy: Policy,
    settings: Settings,
    gamma: float,
    now: Start,
    at: Params,
    batch: Batch,
) -> tuple[Params, Tensors]:
    """θ_{r,k} + η u_{r,k} from θ_{r,k} = `now.theta`, for trajectories that were drawn at `at`.

    Also the trajectories' statistics [B,M].
    """
    s, psi = settings, rewards_to_go(batch, settings, gamma)
    if s.method == "hapg":
        hapg = partial(estimators.hapg, policy, beta=s.beta, clip=s.weight_clip)
        u, weight, clipped = jax.vmap(hapg)(*now, at, batch, psi)
    else:
        svrpg = partial(estimators.svrpg, policy, beta=s.beta, clip=s.weight_clip)
        u, weight, clipped = jax.vmap(svrpg)(*now, batch, psi)
    if s.direction_clip > 0:
        u = jax.vmap(partial(estimators.shortened, longest=s.direction_clip))(u)
    moved = jax.tree.map(lambda x, d: x + s.lr * d, now.theta, u)
    return moved, trajectory_stats(batch, weight, clipped)


def initial_gradient(
    policy: Policy, settings: Settings, gamma: float, theta: Params, batch: Batch
) -> tuple[Params, Tensors]:
    """The mean of g(τ|θ_0) over each pair's trajectories, and the same statistics [B,M]."""
    psi = rewards_to_go(batch, settings, gamma)
    gradient = jax.vmap(partial(estimators.gradient, policy))(theta, batch, psi)
    ones = jnp.ones(batch.mask.shape[:2])
    return gradient, trajectory_stats(batch, ones, jnp.zeros_like(ones))


def trajectory_stats(batch: Batch, weight: Array, clipped: Array) -> Tensors:
    """Per pair and trajectory [B,M]: return, importance weight, clipped or not, steps."""
    return {
        "returns": (batch.rewards * batch.mask).sum(-1),
        "weights": weight,
        "clipped": clipped,
        "steps": batch.mask.sum(-1),
    }


def client_stats(stats: Tensors) -> Tensors:
    """[K,B,M] → what a client reports [B], and its returns in the order in which they came."""
    weights = stats["weights"]
    return {
        "returns": jnp.moveaxis(stats["returns"], 0, 1).reshape(weights.shape[1], -1),
        "return": stats["returns"].mean((0, 2)),
        "weight_mean": weights.mean((0, 2)),
        "weight_var": weights.var((0, 2)),
        "weight_clipped": stats["clipped"].mean((0, 2)),
        "steps": stats["steps"].sum((0, 2)),
    }


def one_step_stats(stats: Tensors) -> Tensors:
    """`client_stats` of a single step's [B,M]."""
    return client_stats(jax.tree.map(lambda x: x[None], stats))


def to_numpy(tree: Tensors) -> Tensors:
    return jax.tree.map(np.asarray, tree)
