"""One local step for a batch of pairs: u_{r,k}, and θ + η u_{r,k}.

What all runners share once trajectories are there; all of it is traced by JAX.
Shapes: B pairs, M trajectories of each, T steps at most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.policy_gradient import gradient_estimators as estimators
from fedrl.algorithms.policy_gradient.gradient_estimators import Array, Batch
from fedrl.algorithms.policy_gradient.local_step import LocalStep
from fedrl.algorithms.policy_gradient.policies import Params, Policy
from fedrl.algorithms.policy_gradient.runners import Method, Start
from fedrl.algorithms.policy_gradient.settings import Settings
from fedrl.core.types import Shareable, Tensors, UserError

Hook = Callable[[LocalStep], tuple[Params, Tensors]]
PLAYED = ("returns", "steps")
"""Statistics of trajectories that every method has; the others are the method's own."""


def rewards_to_go(batch: Batch, settings: Settings, gamma: float) -> Array:
    """Ψ [B,M,T] for every pair, scaled or standardised as the settings say."""
    psi = estimators.rewards_to_go(batch.rewards, batch.mask, gamma, settings.return_scale)
    return jax.vmap(estimators.standardized)(psi, batch.mask) if settings.standardize else psi


def directions(
    hook: Hook,
    policy: Policy,
    psi: Array,
    start: Start,
    theta: Params,
    at: Params,
    k: Array | int,
    batch: Batch,
) -> tuple[Params, Tensors]:
    """The hook for every pair, and the trajectories' statistics [B,M]."""

    def one(
        theta: Params,
        first: Params,
        server: Tensors,
        client: Tensors,
        at: Params,
        batch: Batch,
        psi: Array,
    ) -> tuple[Params, Tensors]:
        return hook(LocalStep(theta, first, server, client, k, batch, psi, at, policy))

    u, measured = jax.vmap(one)(theta, start.theta, start.server, start.client, at, batch, psi)
    played = {"returns": (batch.rewards * batch.mask).sum(-1), "steps": batch.mask.sum(-1)}
    return u, {**measured, **played}


def local_step(
    method: Method,
    policy: Policy,
    gamma: float,
    start: Start,
    theta: Params,
    at: Params,
    k: Array | int,
    batch: Batch,
) -> tuple[Params, Tensors]:
    """θ_{r,k} + η u_{r,k} from θ_{r,k} = `theta`, for trajectories that were drawn at `at`.

    A pair that has done its K_i steps stays where it is. Also the trajectories' statistics [B,M].
    """
    s = method.settings
    psi = rewards_to_go(batch, s, gamma)
    u, stats = directions(method.measured_direction, policy, psi, start, theta, at, k, batch)
    require_alike(u, theta, "direction")
    if s.direction_clip > 0:
        u = jax.vmap(partial(estimators.shortened, longest=s.direction_clip))(u)
    moved = jax.tree.map(lambda x, d: x + s.lr * d, theta, u)
    if start.steps is not None:
        moves = k < start.steps

        def stopped(x: Array, there: Array) -> Array:
            return jnp.where(moves.reshape(-1, *[1] * (x.ndim - 1)), there, x)

        moved = jax.tree.map(stopped, theta, moved)
    return moved, stats


def require_alike(said: object, theta: Params, hook: str) -> None:
    """Names and shapes [B,…] of what a hook returned: broadcasting would hide that they differ.

    Nothing of this is a client's secret: its words may leave it.
    """
    why = ""
    if not isinstance(said, dict):
        why = f"a {type(said).__name__}, not tensors by the parameters' names"
    elif missing := sorted({*theta} - {*said}):
        why = f"nothing for {', '.join(missing)}"
    elif {*said} - {*theta}:
        why = f"more than the parameters {', '.join(sorted(theta))}"
    else:
        for name, leaf in theta.items():
            if (found := jnp.shape(said[name])) != leaf.shape:
                why = f"{name} in the shape {found[1:]}; the parameter's is {leaf.shape[1:]}"
    if why:
        raise UserError(Shareable(f"{hook} returns {why}"))


def finished(method: Method, start: Start, last: Params, pairs: int) -> tuple[Tensors, Tensors]:
    """What every pair sends and keeps after its steps."""
    equal = jnp.full(pairs, method.settings.local_steps, jnp.int32)
    steps = equal if start.steps is None else jnp.asarray(start.steps)
    return jax.vmap(method.finish)(start.theta, last, start.server, start.client, steps)


def client_stats(method: Method, stats: Tensors, steps: Array | np.ndarray | None) -> Tensors:
    """[K,B,M] → what a client reports [B], and its returns in the order in which they came.

    What a pair did after its K_i steps does not count; the caller cuts its returns.
    """
    returns = stats["returns"]
    if steps is None:

        def mean(values: Array) -> Array:
            return values.mean((0, 2))

        taken = stats["steps"]
    else:
        counts = jnp.arange(len(returns))[:, None] < steps  # [K,B]
        weight = counts[:, :, None] / (steps[:, None] * returns.shape[2])

        def mean(values: Array) -> Array:
            return jnp.where(weight > 0, values * weight, 0.0).sum((0, 2))

        taken = stats["steps"] * counts[:, :, None]
    measured = {name: values for name, values in stats.items() if name not in PLAYED}
    return {
        "returns": jnp.moveaxis(returns, 0, 1).reshape(returns.shape[1], -1),
        "return": mean(returns),
        "steps": taken.sum((0, 2)),
        **(method.summarize(measured, mean) if measured else {}),
    }


def estimated(
    hook: Callable[[LocalStep], Params],
    method: Method,
    policy: Policy,
    gamma: float,
    start: Start,
    batch: Batch,
) -> tuple[Params, Tensors]:
    """`hook` at θ for every pair's trajectories, and their statistics [1,B,M]."""
    psi, theta = rewards_to_go(batch, method.settings, gamma), start.theta
    u, stats = directions(lambda now: (hook(now), {}), policy, psi, start, theta, theta, 0, batch)
    return u, jax.tree.map(lambda x: x[None], stats)


def to_numpy(tree: Tensors) -> Tensors:
    return jax.tree.map(np.asarray, tree)
