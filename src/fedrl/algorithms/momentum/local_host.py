"""Local rounds for worlds outside JAX (MuJoCo): sampling on the host, the estimators compiled.

Mirrors `pg_traced.TracedRunner`: the same batch axis, the same estimators, the same statistics.

The world draws the noise of its actions and hands it to `act`: with `continuous` actions standard
normal numbers [b, A], and then it gets actions [b, A]; else uniform ones of [0, 1) [b], and then
numbers of actions [b].
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.momentum import estimators
from fedrl.algorithms.momentum.estimators import Trajectories
from fedrl.algorithms.momentum.local_compiled import (
    Stats,
    directions,
    over_steps,
    rewards_to_go,
    trajectory_stats,
)
from fedrl.algorithms.momentum.policies import Params, Policy

Array = Any


class HostRunner:
    """Samples with the world's own loop, one row of parameters per trajectory; steps in JAX."""

    def __init__(self, world: Any, settings: Any, policy: Policy) -> None:
        self.world = world
        self.settings = settings
        self.policy = policy
        self._step = jax.jit(self._step_traced)
        self._gradient = jax.jit(self._gradient_traced)

    def init(self, seed: int) -> Params:
        return self.policy.init(seed)

    def project(self, theta: Params) -> Params:
        return theta

    def local(
        self, theta: Params, previous: Params, direction: Params, params: Any, seeds: np.ndarray
    ) -> tuple[Params, Stats]:
        """Δ = θ_{r,K} − θ_r for every pair, and what happened on the way."""
        s, now, steps = self.settings, theta, []
        for k in range(s.local_steps):
            at, alpha = now, np.zeros(len(seeds), np.float32)
            if s.method == "hapg":
                alpha = _uniform(seeds, k)
                at = jax.tree.map(
                    lambda x, y, a=alpha: _rows(a, x) * y + (1 - _rows(a, x)) * x, now, previous
                )
            batch = self._sample(at, params, _seeds_of_step(seeds, k, s.trajectories))
            now, stats = self._step(now, previous, direction, at, batch)
            now = jax.tree.map(np.asarray, now)
            steps.append(jax.tree.map(np.asarray, stats))
        stacked = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        delta = jax.tree.map(np.subtract, now, theta)
        return delta, jax.tree.map(np.asarray, over_steps(stacked))

    def initial_exchange(
        self, theta: Params, params: Any, seeds: np.ndarray, batch: int
    ) -> tuple[Params, Stats]:
        """Mean of `batch` first gradients at θ_0 for every pair: the client's part of u_0."""
        trajectories = self._sample(theta, params, _seeds_of_step(seeds, 0, batch))
        gradient, stats = self._gradient(theta, trajectories)
        stats = over_steps(jax.tree.map(lambda x: x[None], stats))
        return jax.tree.map(np.asarray, gradient), jax.tree.map(np.asarray, stats)

    def returns(self, theta: Params, params: Any, seeds: np.ndarray, episodes: int) -> np.ndarray:
        """Undiscounted returns [B, episodes] of fresh episodes."""
        batch = self._sample(theta, params, _seeds_of_step(seeds, 0, episodes))
        return (batch.rewards * batch.mask).sum(-1)

    def _sample(self, theta: Params, params: Any, seeds: np.ndarray) -> Trajectories:
        """One trajectory per entry of `seeds` [B,M], with the parameters of its pair."""
        pairs, count = seeds.shape
        thetas = {name: np.repeat(np.asarray(leaf), count, 0) for name, leaf in theta.items()}
        envs = {name: np.repeat(leaf, count, 0) for name, leaf in params.items()}

        def act(observations: Array, noise: Array, alive: Array) -> Array:
            if noise.shape != (wanted := (len(alive), *self.policy.noise_shape)):
                raise ValueError(f"the world's noise has the shape {noise.shape}, not {wanted}")
            # Almost always everybody is alive: no copy of the parameters then.
            rows = (
                thetas if len(alive) == pairs * count else {n: x[alive] for n, x in thetas.items()}
            )
            return self.policy.sample_rows(rows, observations, noise)

        # A policy may diverge: its update is refused then, and that says it better than warnings.
        with np.errstate(over="ignore", invalid="ignore"):
            raw = self.world.rollout(act, envs, seeds.reshape(-1))
        fields = (raw.observations, raw.actions, raw.rewards, raw.mask)
        return Trajectories(*(x.reshape(pairs, count, *x.shape[1:]) for x in fields))

    def _step_traced(
        self, now: Params, previous: Params, direction: Params, at: Params, batch: Trajectories
    ) -> tuple[Params, Stats]:
        psi = rewards_to_go(batch, self.settings, self.world.gamma)
        u, weight, clipped = directions(
            self.policy, self.settings, now, previous, direction, at, batch, psi
        )
        moved = jax.tree.map(lambda x, d: x + self.settings.lr * d, now, u)
        return moved, trajectory_stats(batch, weight, clipped)

    def _gradient_traced(self, theta: Params, batch: Trajectories) -> tuple[Params, Stats]:
        psi = rewards_to_go(batch, self.settings, self.world.gamma)
        gradient = jax.vmap(partial(estimators.gradient, self.policy))(theta, batch, psi)
        ones = jnp.ones(batch.mask.shape[:2])
        return gradient, trajectory_stats(batch, ones, jnp.zeros_like(ones))


def _seeds_of_step(seeds: np.ndarray, k: int, count: int) -> np.ndarray:
    """[B] → [B, count]: a seed per trajectory of local step k."""
    rows = [np.random.SeedSequence([int(s), k]).generate_state(count, np.uint64) for s in seeds]
    return np.stack(rows)


def _uniform(seeds: np.ndarray, k: int) -> np.ndarray:
    """α of FedHAPG-M's local step k, one per pair."""
    draws = [np.random.default_rng([int(s), k, 1]).uniform() for s in seeds]
    return np.asarray(draws, np.float32)


def _rows(alpha: np.ndarray, like: np.ndarray) -> np.ndarray:
    return alpha.reshape(-1, *([1] * (like.ndim - 1)))
