"""Local rounds in worlds that are known as tables: played in JAX, evaluated exactly.

States are observed one-hot and the policy is a softmax table, so that a method that is written for
networks runs here as it is, and what it learns is compared with exact values and gradients.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.algorithms.policy_gradient.policies import Array, table
from fedrl.algorithms.policy_gradient.runners import Method, Stats
from fedrl.algorithms.policy_gradient.runners.jax_worlds import JaxRunner
from fedrl.core.types import Tensors
from fedrl.envs.control import random_mdp
from fedrl.envs.interfaces import JaxSample, TabularWorld, Trajectories


class OneHot:
    """A tabular world as one that JAX plays: kernels [B,n,S,A,S] and rewards [B,n,S,A]."""

    continuous = False

    def __init__(self, world: TabularWorld) -> None:
        self.clients, self.params = world.clients, world.params
        self.horizon, self.gamma = world.horizon, world.gamma
        self.observation_size, self.action_size = world.rewards.shape
        self._first = np.cumsum(world.initial)[:-1].astype(np.float32)

    def rollout_jax(
        self, sample: JaxSample, noise: Array, params: Tensors, keys: Array
    ) -> Trajectories[Array]:
        """B episodes of `horizon` steps; each draws its environment, first state and moves."""
        rows, count = jnp.arange(noise.shape[0]), params["kernel"].shape[1]
        choose, place, move = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
        pick = jax.vmap(lambda key: jax.random.randint(key, (), 0, count))(choose)
        edges = jnp.cumsum(params["kernel"][rows, pick], -1)[..., :-1]  # [B,S,A,S-1]
        rewards = params["reward"][rows, pick]
        moves = jax.vmap(lambda key: jax.random.uniform(key, (self.horizon,)))(move)
        start = jax.vmap(jax.random.uniform)(place)[:, None]
        first = (start >= self._first).sum(-1)

        def step(state: Array, drawn: tuple[Array, Array]) -> tuple[Array, tuple[Array, ...]]:
            here = jax.nn.one_hot(state, self.observation_size, axis=0)  # [S,B]
            action = sample(here, drawn[0])
            below = edges[rows, state, action]
            after = (drawn[1][:, None] >= below).sum(-1)
            return after, (here, action, rewards[rows, state, action])

        noise_t = jnp.moveaxis(noise, (0, 1), (-1, 0))
        _, (seen, actions, paid) = jax.lax.scan(step, first, (noise_t, moves.T))
        paid = paid.T.astype(jnp.float32)
        return Trajectories(jnp.moveaxis(seen, -1, 0), actions.T, paid, jnp.ones_like(paid))


class TableRunner(JaxRunner):
    """`JaxRunner` with exact evaluation; θ has one leaf, the logits [S,A]."""

    def __init__(self, world: TabularWorld, method: Method) -> None:
        super().__init__(OneHot(world), method, table(*world.rewards.shape))
        self.initial = world.initial

    def project(self, theta: Tensors) -> Tensors:
        return theta

    def returns(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, episodes: int
    ) -> np.ndarray:
        """J, so one "episode" says it all."""
        return random_mdp.performance(_policy(theta), *self._tables(params))[:, None]

    def diagnostics(self, state: Tensors, params: Tensors) -> Stats:
        """`grad_norm_sq` is ‖∇J(θ_r)‖² of the average J over environments."""
        policy = _policy(state["theta"])[:, None]
        slope = random_mdp.gradient(policy, *self._tables(params)).mean(axis=-3)
        return {"eval/grad_norm_sq": (slope**2).sum((-2, -1))}

    def _tables(self, params: Tensors) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        kernel, reward = params["kernel"][..., 0, :, :, :], params["reward"][..., 0, :, :]
        return kernel, reward, self.initial, self.world.gamma


def _policy(theta: Tensors) -> np.ndarray:
    return random_mdp.softmax(np.asarray(theta["logits"], np.float64))
