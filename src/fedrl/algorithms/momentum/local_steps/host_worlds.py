"""Local rounds for worlds outside JAX (MuJoCo): sampling on the host, the estimators compiled.

Mirrors `jax_worlds.JaxRunner`: the same batch axis, the same estimators, the same statistics.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from fedrl.algorithms.momentum.local_steps import Start, Stats
from fedrl.algorithms.momentum.local_steps.directions import (
    client_stats,
    initial_gradient,
    local_step,
    one_step_stats,
    to_numpy,
)
from fedrl.algorithms.momentum.policies import Policy
from fedrl.algorithms.momentum.settings import Settings
from fedrl.core.types import Tensors
from fedrl.envs.interfaces import HostWorld, Trajectories


class HostRunner:
    """Samples with the world's own loop, one row of parameters per trajectory; steps in JAX."""

    def __init__(self, world: HostWorld, settings: Settings, policy: Policy) -> None:
        self.world = world
        self.settings = settings
        self.policy = policy
        self.init = policy.init
        self._step = jax.jit(partial(local_step, policy, settings, world.gamma))
        self._gradient = jax.jit(partial(initial_gradient, policy, settings, world.gamma))

    def local(self, start: Start, params: Tensors, seeds: np.ndarray) -> tuple[Tensors, Stats]:
        s, now, steps = self.settings, start, []
        for k in range(s.local_steps):
            at = now.theta
            if s.method == "hapg":
                at = _interpolate(now.theta, now.previous, _uniform(seeds, k))
            batch = self._sample(at, params, _seeds_of_step(seeds, k, s.trajectories))
            moved, stats = self._step(now, at, batch)
            now = now._replace(theta=to_numpy(moved))
            steps.append(to_numpy(stats))
        stacked = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        return jax.tree.map(np.subtract, now.theta, start.theta), to_numpy(client_stats(stacked))

    def initial_exchange(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, batch: int
    ) -> tuple[Tensors, Stats]:
        trajectories = self._sample(theta, params, _seeds_of_step(seeds, 0, batch))
        gradient, stats = self._gradient(theta, trajectories)
        return to_numpy(gradient), to_numpy(one_step_stats(stats))

    def returns(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, episodes: int
    ) -> np.ndarray:
        batch = self._sample(theta, params, _seeds_of_step(seeds, 0, episodes))
        return (batch.rewards * batch.mask).sum(-1)

    def _sample(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray
    ) -> Trajectories[np.ndarray]:
        """One trajectory per entry of `seeds` [B,M], with the parameters of its pair."""
        pairs, count = seeds.shape
        thetas = {name: np.repeat(np.asarray(leaf), count, 0) for name, leaf in theta.items()}
        envs = {name: np.repeat(leaf, count, 0) for name, leaf in params.items()}

        def act(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
            if noise.shape != (wanted := (len(alive), *self.policy.noise_shape)):
                raise ValueError(f"the world's noise has the shape {noise.shape}, not {wanted}")
            # Almost always everybody is alive: no copy of the parameters then.
            rows = (
                thetas if len(alive) == pairs * count else {n: x[alive] for n, x in thetas.items()}
            )
            return self.policy.sample_rows(rows, observations, noise)

        # A policy may diverge: its update is refused then, and that says it better than warnings.
        with np.errstate(over="ignore", invalid="ignore"):
            played = self.world.rollout(act, envs, seeds.reshape(-1))
        return Trajectories(*(x.reshape(pairs, count, *x.shape[1:]) for x in played))


def _seeds_of_step(seeds: np.ndarray, k: int, count: int) -> np.ndarray:
    """[B] → [B, count]: a seed per trajectory of local step k."""
    rows = [np.random.SeedSequence([int(s), k]).generate_state(count, np.uint64) for s in seeds]
    return np.stack(rows)


def _uniform(seeds: np.ndarray, k: int) -> np.ndarray:
    """α of FedHAPG-M's local step k, one per pair."""
    draws = [np.random.default_rng([int(s), k, 1]).uniform() for s in seeds]
    return np.asarray(draws, np.float32)


def _interpolate(theta: Tensors, previous: Tensors, alpha: np.ndarray) -> Tensors:
    """θ(α) = α θ_{r-1} + (1-α) θ_{r,k}, an α [B] for every pair."""

    def between(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        share = alpha.reshape(-1, *([1] * (here.ndim - 1)))
        return share * there + (1 - share) * here

    return jax.tree.map(between, theta, previous)
