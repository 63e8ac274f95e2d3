"""Local rounds for worlds written in JAX: K steps for a batch of (seed, client) pairs, compiled.

The batch axis B is explicit and the loops run outside it, so that one client, a cohort, and a
cohort times two dozen seeds are the same program.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.momentum import estimators
from fedrl.algorithms.momentum.estimators import Trajectories
from fedrl.algorithms.momentum.policies import Params, Policy

Array = Any
Stats = dict[str, Array]


def keys_from(seeds: np.ndarray) -> Array:
    """JAX keys [B] from 64-bit seeds [B]."""
    words = np.stack([seeds >> np.uint64(32), seeds & np.uint64(0xFFFFFFFF)], 1).astype(np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words))


def repeat(tree: Any, times: int) -> Any:
    """[B,…] → [B·times,…], each row `times` times in a row."""
    return tree if times == 1 else jax.tree.map(lambda x: jnp.repeat(x, times, 0), tree)


class TracedRunner:
    """Samples and steps a batch of pairs in a traced world."""

    def __init__(self, world: Any, settings: Any, policy: Policy) -> None:
        self.world = world
        self.settings = settings
        self.policy = policy
        self._local = jax.jit(self._local_traced)
        self._opening = jax.jit(self._opening_traced, static_argnames="batch")
        self._returns = jax.jit(self._returns_traced, static_argnames="episodes")

    def init(self, seed: int) -> Params:
        return self.policy.init(seed)

    def project(self, theta: Params) -> Params:
        return theta

    def local(
        self, theta: Params, previous: Params, direction: Params, params: Any, seeds: np.ndarray
    ) -> tuple[Params, Stats]:
        """Δ = θ_{r,K} − θ_r for every pair, and what happened on the way ([B] each)."""
        delta, stats = self._local(theta, previous, direction, params, keys_from(seeds))
        return _numpy(delta), _numpy(stats)

    def initial_exchange(
        self, theta: Params, params: Any, seeds: np.ndarray, batch: int
    ) -> tuple[Params, Stats]:
        """Mean of `batch` first gradients at θ_0 for every pair: the client's part of u_0."""
        gradient, stats = self._opening(theta, params, keys_from(seeds), batch=batch)
        return _numpy(gradient), _numpy(stats)

    def returns(self, theta: Params, params: Any, seeds: np.ndarray, episodes: int) -> np.ndarray:
        """Undiscounted returns [B, episodes] of fresh episodes."""
        return np.asarray(self._returns(theta, params, keys_from(seeds), episodes=episodes))

    def _sample(
        self, theta: Params, params: Any, keys: Array, count: int
    ) -> tuple[Trajectories, Array]:
        """`count` trajectories for every pair: leaves [B, count, T, …]; Ψ comes along."""
        policy, world, pairs = self.policy, self.world, keys.shape[0]
        keys = jax.vmap(lambda key: jax.random.split(key, count))(keys).reshape(pairs * count)
        noise_keys, world_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        draw = jax.random.uniform if policy.noise == "uniform" else jax.random.normal
        noise = jax.vmap(lambda key: draw(key, (world.horizon, *policy.noise_shape)))(noise_keys)
        thetas = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), repeat(theta, count))
        raw = world.rollout(
            partial(policy.sample, thetas),
            noise,
            repeat(params, count),
            world_keys,
        )
        batch = Trajectories(*(x.reshape(pairs, count, *x.shape[1:]) for x in raw))
        return batch, rewards_to_go(batch, self.settings, world.gamma)

    def _local_traced(
        self, theta: Params, previous: Params, direction: Params, params: Any, keys: Array
    ) -> tuple[Params, Stats]:
        s = self.settings

        def step(now: Params, k: Array) -> tuple[Params, Stats]:
            keys_k = jax.vmap(lambda key: jax.random.fold_in(key, k))(keys)
            sample_keys, alpha_keys = jax.vmap(jax.random.split, out_axes=1)(keys_k)
            at = now
            if s.method == "hapg":
                alpha = jax.vmap(jax.random.uniform)(alpha_keys)
                at = jax.vmap(estimators.interpolate)(now, previous, alpha)
            batch, psi = self._sample(at, params, sample_keys, s.trajectories)
            u, weight, clipped = directions(
                self.policy, s, now, previous, direction, at, batch, psi
            )
            stats = trajectory_stats(batch, weight, clipped)
            return jax.tree.map(lambda x, d: x + s.lr * d, now, u), stats

        last, stats = jax.lax.scan(step, theta, jnp.arange(s.local_steps))
        return jax.tree.map(jnp.subtract, last, theta), over_steps(stats)

    def _opening_traced(
        self, theta: Params, params: Any, keys: Array, batch: int
    ) -> tuple[Params, Stats]:
        trajectories, psi = self._sample(theta, params, keys, batch)
        gradient = jax.vmap(partial(estimators.gradient, self.policy))(theta, trajectories, psi)
        ones = jnp.ones(psi.shape[:2])
        stats = trajectory_stats(trajectories, ones, jnp.zeros_like(ones))
        return gradient, over_steps(jax.tree.map(lambda x: x[None], stats))

    def _returns_traced(self, theta: Params, params: Any, keys: Array, episodes: int) -> Array:
        batch, _ = self._sample(theta, params, keys, episodes)
        return (batch.rewards * batch.mask).sum(-1)


def rewards_to_go(batch: Trajectories, settings: Any, gamma: float) -> Array:
    """Ψ [B,M,T] for every pair, scaled or standardised as the settings say."""
    psi = estimators.rewards_to_go(batch.rewards, batch.mask, gamma, settings.return_scale)
    return jax.vmap(estimators.standardized)(psi, batch.mask) if settings.standardize else psi


def directions(
    policy: Policy,
    settings: Any,
    theta: Params,
    previous: Params,
    direction: Params,
    at: Params,
    batch: Trajectories,
    psi: Array,
) -> tuple[Params, Array, Array]:
    """u_{r,k} for every pair, by the method of the settings; weights and clipped marks [B,M]."""
    s = settings
    if s.method == "hapg":
        one = partial(estimators.hapg, policy, beta=s.beta, clip=s.weight_clip)
        u, weight, clipped = jax.vmap(one)(theta, previous, direction, at, batch, psi)
    else:
        one = partial(estimators.svrpg, policy, beta=s.beta, clip=s.weight_clip)
        u, weight, clipped = jax.vmap(one)(theta, previous, direction, batch, psi)
    if s.direction_clip > 0:
        u = jax.vmap(partial(estimators.shortened, longest=s.direction_clip))(u)
    return u, weight, clipped


def trajectory_stats(batch: Trajectories, weight: Array, clipped: Array) -> Stats:
    """Per pair and trajectory [B,M]: return, importance weight, clipped or not, steps."""
    return {
        "returns": (batch.rewards * batch.mask).sum(-1),
        "weights": weight,
        "clipped": clipped,
        "steps": batch.mask.sum(-1),
    }


def over_steps(stats: Stats) -> Stats:
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


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
