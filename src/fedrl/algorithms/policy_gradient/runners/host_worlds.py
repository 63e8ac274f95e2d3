"""Local rounds for worlds outside JAX (MuJoCo): sampling on the host, the estimators compiled.

Mirrors `jax_worlds.JaxRunner`: the same batch axis, the same estimators, the same statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

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
from fedrl.envs.interfaces import HostWorld, NetworkWorld, Trajectories


class HostRunner:
    """Samples with the world's own loop, one row of parameters per trajectory; steps in JAX."""

    def __init__(self, world: HostWorld, method: Method, policy: Policy) -> None:
        self.world = world
        self.method = method
        self.policy = policy
        self.init = policy.init
        self._step = jax.jit(partial(local_step, method, policy, world.gamma))
        self._finish = jax.jit(partial(finished, method), static_argnames="pairs")
        self._estimate = jax.jit(self._estimate_traced, static_argnames="hook")

    def local(
        self, start: Start, params: Tensors, seeds: np.ndarray
    ) -> tuple[Tensors, Tensors, Stats]:
        s, theta, steps = self.method.settings, start.theta, []
        carried = at_first(self.method, len(seeds))
        for k in range(s.local_steps if start.steps is None else int(start.steps.max())):
            at = self._sampled_at(theta, start.server, seeds, k)
            playing = None if start.steps is None else np.asarray(k < start.steps)
            chosen = _seeds_of_step(seeds, k, s.trajectories)
            batch = self._sample(at, params, chosen, playing)
            moved, carried, stats = self._step(
                start, theta, at, np.int32(k), batch, carried, np.float32(s.lr)
            )
            theta = to_numpy(moved)
            steps.append(to_numpy(stats))
        stacked = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        update, kept = self._finish(start, theta, carried, pairs=len(seeds))
        stats = client_stats(self.method, stacked, start.steps)
        return to_numpy(update), to_numpy(kept), to_numpy(stats)

    def estimate(
        self,
        hook: Callable[[LocalStep], Params],
        start: Start,
        params: Tensors,
        seeds: np.ndarray,
        count: int,
    ) -> tuple[Tensors, Stats]:
        batch = self._sample(start.theta, params, _seeds_of_step(seeds, 0, count))
        u, stats = self._estimate(start, batch, hook=hook)
        return to_numpy(u), to_numpy(client_stats(self.method, to_numpy(stats), None))

    def _estimate_traced(
        self,
        start: Start,
        batch: Trajectories[jax.Array],
        hook: Callable[[LocalStep], Params],
    ) -> tuple[Params, Tensors]:
        return estimated(hook, self.method, self.policy, self.world.gamma, start, batch)

    def returns(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, episodes: int
    ) -> np.ndarray:
        batch = self._sample(theta, params, _seeds_of_step(seeds, 0, episodes))
        return (batch.rewards * batch.mask).sum(-1)

    def _sampled_at(self, theta: Tensors, server: Tensors, seeds: np.ndarray, k: int) -> Tensors:
        """Where step k's trajectories are drawn; the method's hook, pair by pair."""
        hook = self.method.sampled_at
        if hook is None:
            return theta
        rows = []
        for i, uniform in enumerate(_uniform(seeds, k)):
            here, known = jax.tree.map(lambda x, i=i: x[i], (theta, server))
            rows.append(hook(here, known, uniform))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)

    def _sample(
        self,
        theta: Tensors,
        params: Tensors,
        seeds: np.ndarray,
        playing: np.ndarray | None = None,
    ) -> Trajectories[np.ndarray]:
        """One trajectory per entry of `seeds` [B,M], with the parameters of its pair.

        Of pairs that do not play, empty ones.
        """
        if playing is not None and not playing.all():
            some = np.flatnonzero(playing)
            theta, params = jax.tree.map(lambda x: np.asarray(x)[some], (theta, params))
            played = self._sample(theta, params, seeds[some])
            whole = [np.zeros((len(seeds), *x.shape[1:]), x.dtype) for x in played]
            for record, rows in zip(whole, played):
                record[some] = rows
            return Trajectories(*whole)
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
            alone = self._played(thetas, envs, seeds.reshape(-1))
            played = alone or self.world.rollout(act, envs, seeds.reshape(-1))
        return Trajectories(*(x.reshape(pairs, count, *x.shape[1:]) for x in played))

    def _played(
        self, thetas: Tensors, envs: Tensors, seeds: np.ndarray
    ) -> Trajectories[np.ndarray] | None:
        """By the world itself, where it can and the policy is a network that it knows."""
        network = self.policy.network
        if network is None or not isinstance(self.world, NetworkWorld):
            return None
        return self.world.rollout_network(network(thetas), envs, seeds)


def _seeds_of_step(seeds: np.ndarray, k: int, count: int) -> np.ndarray:
    """[B] → [B, count]: a seed per trajectory of local step k."""
    rows = [np.random.SeedSequence([int(s), k]).generate_state(count, np.uint64) for s in seeds]
    return np.stack(rows)


def _uniform(seeds: np.ndarray, k: int) -> np.ndarray:
    """A number of [0, 1) for local step k of every pair, as `sampled_at` is given it."""
    draws = [np.random.default_rng([int(s), k, 1]).uniform() for s in seeds]
    return np.asarray(draws, np.float32)
