"""Local rounds in worlds known as tables: E updates of every entry of Q [S, |A|], in float64.

An update sees every pair (s, a) with the states that follow it, each counting by its probability
(or drawn, `samples` of them, each counting 1/samples). So for squared errors a plain step is

    Q(s, a) ← (1 − lr) Q(s, a) + lr · E[target | s, a]

A client with several environments has their mean: a transition comes from each of them alike.
Memory is that of S·|A|·S transitions, or S·|A|·samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.q_learning.runners import End, Method, Start, update_loss
from fedrl.algorithms.q_learning.settings import TABLE_LR
from fedrl.algorithms.q_learning.td_step import Params, TDStep
from fedrl.core import tree
from fedrl.core.policies import TablePolicy
from fedrl.core.types import Metrics, Range, Tensors
from fedrl.envs.control import random_mdp
from fedrl.envs.interfaces import TabularWorld

Array = jax.Array
NAME = "table"


class TableRunner:
    """Rounds of many clients in one compiled call."""

    reports = frozenset({"train/td_error", "env/steps"})
    heaviest = 1.0  # all do the same
    alike = False

    def __init__(self, world: TabularWorld, method: Method) -> None:
        self.world, self.method = world, method
        settings = method.settings
        self.lr = settings.lr or TABLE_LR
        self.drawn = settings.local_steps * settings.samples * world.rewards.size
        self.ranges = {"env/steps": Range(0, self.drawn, whole=True)}
        self._local = jax.jit(jax.vmap(self._local_traced, in_axes=(0,) * 6 + (None,)))

    def init(self, seed: int) -> Tensors:
        """Q = 0; it needs no randomness, so `seed` changes nothing."""
        return {NAME: np.zeros(self.world.rewards.shape)}

    def precision(self) -> AbstractContextManager[object]:
        return jax.enable_x64(True)

    def local(self, starts: Sequence[Start], sign: float) -> list[End]:
        environments = [self._environment(start.envs) for start in starts]
        kernel, reward = (np.stack(tables) for tables in zip(*environments, strict=True))
        theta = _stacked([start.theta for start in starts])
        server = _stacked([start.server for start in starts])
        client = _stacked([start.client for start in starts])
        with self.precision():
            seeds = np.array([start.seed for start in starts], np.uint64)
            last, error = self._local(theta, server, client, kernel, reward, seeds, sign)
            tables, errors = np.asarray(last[NAME]), np.asarray(error)
        steps, drawn = self.method.settings.local_steps, float(self.drawn)
        return [
            End({NAME: table}, {}, steps, {"train/td_error": float(off), "env/steps": drawn})
            for table, off in zip(tables, errors, strict=True)
        ]  # fmt: skip

    def warm_up(self, start: Start) -> None:
        self.local([start], 1.0)

    def returns(self, theta: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Exact."""
        kernels, rewards = self._everyone
        choice = theta[NAME].argmax(-1)
        policy = (np.arange(rewards.shape[-1]) == choice[:, None]).astype(np.float64)
        world = self.world
        return random_mdp.performance(policy, kernels, rewards, world.initial, world.gamma)

    def policy(self, theta: Tensors) -> TablePolicy:
        return TablePolicy(theta[NAME], "values")

    def diagnostics(self, theta: Tensors) -> Metrics:
        """`q_error`: the largest distance to Q* of the mean environment."""
        return {"eval/q_error": float(np.abs(theta[NAME] - self.optimum).max())}

    @cached_property
    def optimum(self) -> np.ndarray:
        """Q* [S, |A|] of the clients' mean kernel and reward."""
        kernels, rewards = self._everyone
        return optimal_values(kernels.mean(0), rewards.mean(0), self.world.gamma)

    @cached_property
    def _everyone(self) -> tuple[np.ndarray, np.ndarray]:
        params = self.world.params(range(self.world.clients))
        return np.asarray(params["kernel"], np.float64), np.asarray(params["reward"], np.float64)

    def _environment(self, envs: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        kernels, rewards = self._everyone
        return kernels[list(envs)].mean(0), rewards[list(envs)].mean(0)

    def _local_traced(
        self,
        start: Params,
        server: Tensors,
        client: Tensors,
        kernel: Array,
        reward: Array,
        seed: Array,
        sign: Array,
    ) -> tuple[Params, Array]:
        """(θ after E updates, the largest entry of the last one's gradient: its TD error)."""
        s = self.method.settings
        states, actions = reward.shape
        each = s.samples or states  # transitions of a pair
        at, taken = (jnp.repeat(x.ravel(), each) for x in np.indices((states, actions)))
        everywhere = jnp.tile(jnp.arange(states), states * actions)
        key = jax.random.key(seed)
        edges = jnp.cumsum(kernel, -1)[..., None, :-1]

        def values(theta: Params, where: Array) -> Array:
            return theta[NAME][where]

        def transitions(k: Array) -> tuple[Array, Array]:
            """Next states and what they count [B]."""
            if not s.samples:
                return everywhere, kernel.ravel()
            uniform = jax.random.uniform(jax.random.fold_in(key, k), (states, actions, each, 1))
            return (uniform >= edges).sum(-1).ravel(), jnp.full(at.size, 1 / each)

        def update(carry: tuple[Params, Array], k: Array) -> tuple[tuple[Params, Array], None]:
            theta, _ = carry
            nexts, weight = transitions(k)

            def loss(theta: Params) -> Array:
                q_next = values(theta, nexts)
                now = TDStep(
                    values(theta, at), q_next, jax.lax.stop_gradient(q_next), taken,
                    sign * reward[at, taken], jnp.zeros(at.size, bool), self.world.gamma, weight,
                    at, nexts, theta, start, server, client, values,
                )  # fmt: skip
                return update_loss(self.method, now)

            gradient = jax.grad(loss)(theta)[NAME]
            return ({NAME: theta[NAME] - self.lr * gradient}, jnp.abs(gradient).max()), None

        return jax.lax.scan(update, (start, jnp.zeros(())), jnp.arange(s.local_steps))[0]


def optimal_values(kernel: np.ndarray, reward: np.ndarray, gamma: float) -> np.ndarray:
    """Q* [S, |A|] by policy iteration."""
    choice = reward.argmax(-1)
    while True:
        policy = (np.arange(reward.shape[-1]) == choice[:, None]).astype(np.float64)
        value, q = random_mdp.values(policy, kernel, reward, gamma)
        better = q.max(-1) > value + 1e-12 / (1 - gamma)  # a strict gain: ties must not flip
        if not better.any():
            return q
        choice = np.where(better, q.argmax(-1), choice)


def _stacked(trees: Sequence[Tensors]) -> Tensors:
    return tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
