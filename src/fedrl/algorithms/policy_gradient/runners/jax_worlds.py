"""Local rounds for worlds written in JAX: K steps for a batch of (seed, client) pairs, compiled.

The batch axis B is explicit and the loops run outside it, so that one client, a cohort, and a
cohort times two dozen seeds are the same program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.policy_gradient.gradient_estimators import Array, Batch
from fedrl.algorithms.policy_gradient.local_step import LocalStep
from fedrl.algorithms.policy_gradient.policies import Params, Policy
from fedrl.algorithms.policy_gradient.runners import Method, Start, Stats
from fedrl.algorithms.policy_gradient.runners.steps import (
    at_first,
    client_stats,
    estimated,
    finished,
    local_step,
    to_numpy,
)
from fedrl.core.types import Tensors
from fedrl.envs.interfaces import JaxWorld


def keys_from(seeds: np.ndarray) -> Array:
    """JAX keys [B] from 64-bit seeds [B]."""
    words = np.stack([seeds >> np.uint64(32), seeds & np.uint64(0xFFFFFFFF)], 1).astype(np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words))


def repeat(tree: Tensors, times: int) -> Tensors:
    """[B,…] → [B·times,…], each row `times` times in a row."""
    return tree if times == 1 else jax.tree.map(lambda x: jnp.repeat(x, times, 0), tree)


class JaxRunner:
    """Samples and steps a batch of pairs in a JAX world."""

    def __init__(self, world: JaxWorld, method: Method, policy: Policy) -> None:
        self.world = world
        self.method = method
        self.policy = policy
        self.init = policy.init
        self._local = jax.jit(self._local_traced)
        self._estimate = jax.jit(self._estimate_traced, static_argnames=("hook", "count"))
        self._returns = jax.jit(self._returns_traced, static_argnames="episodes")

    def local(
        self, start: Start, params: Tensors, seeds: np.ndarray
    ) -> tuple[Tensors, Tensors, Stats]:
        eta = np.float32(self.method.settings.lr)
        update, kept, stats = self._local(start, params, keys_from(seeds), eta)
        return to_numpy(update), to_numpy(kept), to_numpy(stats)

    def estimate(
        self,
        hook: Callable[[LocalStep], Params],
        start: Start,
        params: Tensors,
        seeds: np.ndarray,
        count: int,
    ) -> tuple[Tensors, Stats]:
        u, stats = self._estimate(start, params, keys_from(seeds), hook=hook, count=count)
        return to_numpy(u), to_numpy(stats)

    def returns(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, episodes: int
    ) -> np.ndarray:
        return np.asarray(self._returns(theta, params, keys_from(seeds), episodes=episodes))

    def _sample(self, theta: Params, params: Tensors, keys: Array, count: int) -> Batch:
        """`count` trajectories for every pair: leaves [B, count, T, …]."""
        policy, world, pairs = self.policy, self.world, keys.shape[0]
        keys = jax.vmap(lambda key: jax.random.split(key, count))(keys).reshape(pairs * count)
        noise_keys, world_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        draw = jax.random.uniform if policy.noise == "uniform" else jax.random.normal
        noise = jax.vmap(lambda key: draw(key, (world.horizon, *policy.noise_shape)))(noise_keys)
        thetas = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), repeat(theta, count))
        raw = world.rollout_jax(
            partial(policy.sample, thetas), noise, repeat(params, count), world_keys
        )
        return Batch(*(x.reshape(pairs, count, *x.shape[1:]) for x in raw))

    def _local_traced(
        self, start: Start, params: Tensors, keys: Array, eta: Array
    ) -> tuple[Tensors, Tensors, Tensors]:
        method, gamma, s = self.method, self.world.gamma, self.method.settings

        def step(now: tuple[Params, Tensors], k: Array) -> tuple[tuple[Params, Tensors], Tensors]:
            theta, carried = now
            keys_k = jax.vmap(lambda key: jax.random.fold_in(key, k))(keys)
            sample_keys, other_keys = jax.vmap(jax.random.split, out_axes=1)(keys_k)
            at = theta
            if method.sampled_at is not None:
                uniform = jax.vmap(jax.random.uniform)(other_keys)
                at = jax.vmap(method.sampled_at)(theta, start.server, uniform)
            batch = self._sample(at, params, sample_keys, s.trajectories)
            moved, carried, stats = local_step(
                method, self.policy, gamma, start, theta, at, k, batch, carried, eta
            )
            return (moved, carried), stats

        count = s.local_steps if start.steps is None else s.most_steps
        first = (start.theta, at_first(method, len(keys)))
        (last, carried), stats = jax.lax.scan(step, first, jnp.arange(count))
        update, kept = finished(method, start, last, carried, len(keys))
        return update, kept, client_stats(method, stats, start.steps)

    def _estimate_traced(
        self,
        start: Start,
        params: Tensors,
        keys: Array,
        hook: Callable[[LocalStep], Params],
        count: int,
    ) -> tuple[Params, Tensors]:
        batch = self._sample(start.theta, params, keys, count)
        u, stats = estimated(hook, self.method, self.policy, self.world.gamma, start, batch)
        return u, client_stats(self.method, stats, None)

    def _returns_traced(self, theta: Params, params: Tensors, keys: Array, episodes: int) -> Array:
        batch = self._sample(theta, params, keys, episodes)
        return (batch.rewards * batch.mask).sum(-1)
