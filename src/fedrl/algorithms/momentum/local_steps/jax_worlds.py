"""Local rounds for worlds written in JAX: K steps for a batch of (seed, client) pairs, compiled.

The batch axis B is explicit and the loops run outside it, so that one client, a cohort, and a
cohort times two dozen seeds are the same program.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.momentum import gradient_estimators as estimators
from fedrl.algorithms.momentum.gradient_estimators import Array, Batch
from fedrl.algorithms.momentum.local_steps import Start, Stats
from fedrl.algorithms.momentum.local_steps.directions import (
    client_stats,
    initial_gradient,
    local_step,
    one_step_stats,
    to_numpy,
)
from fedrl.algorithms.momentum.policies import Params, Policy
from fedrl.algorithms.momentum.settings import Settings
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

    def __init__(self, world: JaxWorld, settings: Settings, policy: Policy) -> None:
        self.world = world
        self.settings = settings
        self.policy = policy
        self.init = policy.init
        self._local = jax.jit(self._local_traced)
        self._initial = jax.jit(self._initial_traced, static_argnames="batch")
        self._returns = jax.jit(self._returns_traced, static_argnames="episodes")

    def local(self, start: Start, params: Tensors, seeds: np.ndarray) -> tuple[Tensors, Stats]:
        delta, stats = self._local(start, params, keys_from(seeds))
        return to_numpy(delta), to_numpy(stats)

    def initial_exchange(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, batch: int
    ) -> tuple[Tensors, Stats]:
        gradient, stats = self._initial(theta, params, keys_from(seeds), batch=batch)
        return to_numpy(gradient), to_numpy(stats)

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

    def _local_traced(self, start: Start, params: Tensors, keys: Array) -> tuple[Params, Tensors]:
        s, gamma = self.settings, self.world.gamma

        def step(theta: Params, k: Array) -> tuple[Params, Tensors]:
            keys_k = jax.vmap(lambda key: jax.random.fold_in(key, k))(keys)
            sample_keys, alpha_keys = jax.vmap(jax.random.split, out_axes=1)(keys_k)
            at = theta
            if s.method == "hapg":
                alpha = jax.vmap(jax.random.uniform)(alpha_keys)
                at = jax.vmap(estimators.interpolate)(theta, start.previous, alpha)
            batch = self._sample(at, params, sample_keys, s.trajectories)
            now = start._replace(theta=theta)
            return local_step(self.policy, s, gamma, now, at, batch)

        last, stats = jax.lax.scan(step, start.theta, jnp.arange(s.local_steps))
        return jax.tree.map(jnp.subtract, last, start.theta), client_stats(stats)

    def _initial_traced(
        self, theta: Params, params: Tensors, keys: Array, batch: int
    ) -> tuple[Params, Tensors]:
        trajectories = self._sample(theta, params, keys, batch)
        gradient, stats = initial_gradient(
            self.policy, self.settings, self.world.gamma, theta, trajectories
        )
        return gradient, one_step_stats(stats)

    def _returns_traced(self, theta: Params, params: Tensors, keys: Array, episodes: int) -> Array:
        batch = self._sample(theta, params, keys, episodes)
        return (batch.rewards * batch.mask).sum(-1)
