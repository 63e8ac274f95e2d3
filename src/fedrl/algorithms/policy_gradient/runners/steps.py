"""One local step for a batch of pairs: u_{r,k}, and θ + η u_{r,k}.

What all runners share once trajectories are there; all of it is traced by JAX.
Shapes: B pairs, M trajectories of each, T steps at most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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
    if settings.standardize:
        psi = jax.vmap(estimators.standardized)(psi, batch.mask)
    return jax.vmap(estimators.per_step)(psi, batch.mask) if settings.mean_over_steps else psi


def at_first(method: Method, pairs: int) -> Tensors:
    """What pairs carry from step to step beside θ: nothing where all steps have one length."""
    if method.step_size is None:
        return {}
    return {"total": jnp.zeros(pairs), "taken": jnp.zeros(pairs)}


def for_pairs(
    hook: Callable[..., Any],
    policy: Policy,
    psi: Array,
    start: Start,
    theta: Params,
    at: Params,
    k: Array | int,
    batch: Batch,
    *more: Array,
) -> Any:
    """`hook(now, …)` for every pair; `more` has one entry for each."""

    def one(
        theta: Params,
        first: Params,
        server: Tensors,
        client: Tensors,
        at: Params,
        batch: Batch,
        psi: Array,
        *own: Array,
    ) -> Any:
        return hook(LocalStep(theta, first, server, client, k, batch, psi, at, policy), *own)

    return jax.vmap(one)(theta, start.theta, start.server, start.client, at, batch, psi, *more)


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
    u, measured = for_pairs(hook, policy, psi, start, theta, at, k, batch)
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
    carried: Tensors,
    eta: Array | float,
) -> tuple[Params, Tensors, Tensors]:
    """θ_{r,k} + η u_{r,k} from θ_{r,k} = `theta`, for trajectories that were drawn at `at`.

    A pair that has done its K_i steps stays where it is. Also what is carried to the next step, and
    the trajectories' statistics [B,M]. η is given apart from the settings, so that runs that differ
    in nothing else are one compiled program.
    """
    s = method.settings
    psi = rewards_to_go(batch, s, gamma)
    u, stats = directions(method.measured_direction, policy, psi, start, theta, at, k, batch)
    require_alike(u, theta, "direction")
    if s.direction_clip > 0:
        u = jax.vmap(partial(estimators.shortened, longest=s.direction_clip))(u)
    later = carried
    if method.step_size is None:
        moved = jax.tree.map(lambda x, d: x + eta * d, theta, u)
    else:
        before = carried["total"]
        lr, total = for_pairs(method.step_size, policy, psi, start, theta, at, k, batch, before)
        moved = jax.tree.map(lambda x, d: x + lr.reshape(-1, *[1] * (d.ndim - 1)) * d, theta, u)
        later = {"total": total, "taken": carried["taken"] + lr}
    if start.steps is not None:
        moves = k < start.steps

        def stopped(x: Array, there: Array) -> Array:
            return jnp.where(moves.reshape(-1, *[1] * (x.ndim - 1)), there, x)

        moved, later = jax.tree.map(stopped, (theta, carried), (moved, later))
    return moved, later, stats


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


def finished(
    method: Method, start: Start, last: Params, carried: Tensors, pairs: int
) -> tuple[Tensors, Tensors]:
    """What every pair sends and keeps after its steps; where their lengths differed, as if all had
    been η with the same mean direction."""
    equal = jnp.full(pairs, method.settings.local_steps, jnp.int32)
    steps = equal if start.steps is None else jnp.asarray(start.steps)
    if method.step_size is not None:
        scale = method.settings.lr * steps / carried["taken"]

        def rescaled(x: Array, there: Array) -> Array:
            return x + scale.reshape(-1, *[1] * (x.ndim - 1)) * (there - x)

        last = jax.tree.map(rescaled, start.theta, last)
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
