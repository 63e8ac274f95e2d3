"""Stochastic policies as pure functions of named parameters.

`sample` takes its noise as an argument, so that a whole trajectory's randomness is drawn at once
outside the loop over steps, and a trajectory depends on nothing but its own seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.core.types import Tensors
from fedrl.envs.interfaces import Network, SampledWorld

Array = jax.Array
Params = dict[str, Array]


@dataclass(frozen=True)
class Policy:
    """π_θ(a|s). `noise_shape` is what `sample` wants per step, uniform or normal.

    `log_prob` takes one set of parameters and any leading axes of observations and actions.
    `sample` takes trailing batch axes instead, common to parameters, observation and noise: in the
    loop over steps the batch is the one axis long enough to vectorise. `sample_rows` is the same
    in NumPy, with a leading axis, for worlds that live outside JAX: one row, one set of parameters.
    """

    init: Callable[[int], Tensors]
    sample: Callable[[Params, Array, Array], Array]
    sample_rows: Callable[[Tensors, np.ndarray, np.ndarray], np.ndarray]
    log_prob: Callable[[Params, Array, Array], Array]
    noise_shape: tuple[int, ...]
    noise: str  # "uniform" or "normal"
    network: Callable[[Tensors], Network] | None = None
    """Rows of parameters for worlds that play networks themselves, where it is one with normals."""


def network_policy(world: SampledWorld, log_std: float) -> Policy:
    """The paper's network for the world's actions; `log_std` is where a Gaussian's starts."""
    if world.continuous:
        return gaussian_mlp(world.observation_size, world.action_size, log_std=log_std)
    return categorical_mlp(world.observation_size, world.action_size)


def _mlp_init(generator: np.random.Generator, sizes: list[int], last_scale: float) -> Tensors:
    """Orthogonal weights; a small last layer starts the policy near its most random."""
    params: Tensors = {}
    for layer, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        square = generator.standard_normal((max(n_in, n_out), min(n_in, n_out)))
        q, r = np.linalg.qr(square)
        q = q * np.sign(np.diag(r))
        weight = q if n_in >= n_out else q.T
        scale = last_scale if layer == len(sizes) - 2 else 1.0
        params[f"w{layer}"] = (scale * weight).astype(np.float32)
        params[f"b{layer}"] = np.zeros(n_out, np.float32)
    return params


def _mlp(params: Params, x: Array) -> Array:
    """Features lead, whatever axes follow: x [in,…] and weights [in,out] or [in,out,…].

    Written as a sum over inputs, which XLA turns into one vectorised loop per layer where a tiny
    matrix product would be a call. Only for sampling: differentiated, `_mlp_columns` is quicker.
    """
    layers = _layers(params)
    for layer in range(layers):
        weight, bias = params[f"w{layer}"], params[f"b{layer}"]
        x = sum((x[i] * weight[i] for i in range(1, len(weight))), x[0] * weight[0]) + bias
        x = jnp.tanh(x) if layer < layers - 1 else x
    return x


def _mlp_columns(params: Params, observations: Array) -> Array:
    """Outputs [out,P] for observations […,in] of P points in all.

    Points as columns: the long axis is the one that vectorises, forwards and backwards.
    """
    x = observations.reshape(-1, observations.shape[-1]).T
    layers = _layers(params)
    for layer in range(layers):
        x = params[f"w{layer}"].T @ x + params[f"b{layer}"][:, None]
        x = jnp.tanh(x) if layer < layers - 1 else x
    return x


def _layers(params: Tensors) -> int:
    return sum(name.startswith("w") for name in params)


def categorical_mlp(observations: int, actions: int, hidden: tuple[int, ...] = (8, 8)) -> Policy:
    """Softmax over discrete actions; the paper's CartPole policy has two tanh layers of 8."""
    sizes = [observations, *hidden, actions]

    def init(seed: int) -> Tensors:
        return _mlp_init(np.random.default_rng(seed), sizes, 0.01)

    def sample(params: Params, observation: Array, uniform: Array) -> Array:
        p = jax.nn.softmax(_mlp(params, observation), axis=0)
        # The inverse of the distribution function: one uniform number per action.
        below = itertools.accumulate(p[i] for i in range(actions - 1))
        none = jnp.zeros(uniform.shape, jnp.int32)
        return sum(((uniform >= edge).astype(jnp.int32) for edge in below), none)

    def log_prob(params: Params, observation: Array, action: Array) -> Array:
        log_p = jax.nn.log_softmax(_mlp_columns(params, observation), axis=0)
        chosen = action.reshape(-1) == jnp.arange(actions)[:, None]
        return (log_p * chosen).sum(0).reshape(action.shape)

    return Policy(init, sample, categorical_sample_numpy, log_prob, (), "uniform")


def gaussian_mlp(
    observations: int, actions: int, hidden: tuple[int, ...] = (32, 32), log_std: float = 0.0
) -> Policy:
    """Independent normals with a learned, state-free standard deviation; two tanh layers of 32."""
    sizes = [observations, *hidden, actions]

    def init(seed: int) -> Tensors:
        params = _mlp_init(np.random.default_rng(seed), sizes, 0.01)
        return {**params, "log_std": np.full(actions, log_std, np.float32)}

    def sample(params: Params, observation: Array, normal: Array) -> Array:
        return _mlp(params, observation) + jnp.exp(params["log_std"]) * normal

    def log_prob(params: Params, observation: Array, action: Array) -> Array:
        mean = _mlp_columns(params, observation).T.reshape(action.shape)
        z = (action - mean) * jnp.exp(-params["log_std"])
        return (-0.5 * z * z - params["log_std"] - 0.5 * np.log(2 * np.pi)).sum(-1)

    def network(params: Tensors) -> Network:
        names = [f"{kind}{layer}" for layer in range(len(sizes) - 1) for kind in "wb"]
        rows = [np.asarray(params[name]).reshape(len(params[name]), -1) for name in names]
        return Network(tuple(sizes), np.concatenate(rows, 1), np.exp(params["log_std"]))

    return Policy(init, sample, gaussian_sample_numpy, log_prob, (actions,), "normal", network)


def table(states: int, actions: int) -> Policy:
    """A softmax over the logits of a state; observations are one-hot."""

    def init(seed: int) -> Tensors:
        """The uniform policy; it needs no randomness, so `seed` changes nothing."""
        return {"logits": np.zeros((states, actions), np.float32)}

    def sample(params: Params, observation: Array, uniform: Array) -> Array:
        logits = (params["logits"] * observation[:, None]).sum(0)  # [A,B]
        below = jnp.cumsum(jax.nn.softmax(logits, axis=0), axis=0)[:-1]
        return (uniform >= below).sum(0).astype(jnp.int32)

    def sample_rows(params: Tensors, observations: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        scores = np.einsum("bs,bsa->ba", observations, params["logits"])
        return _categorical_rows(scores, uniform)

    def log_prob(params: Params, observation: Array, action: Array) -> Array:
        log_p = observation @ jax.nn.log_softmax(params["logits"])
        return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]

    return Policy(init, sample, sample_rows, log_prob, (), "uniform")


def _mlp_rows(params: Tensors, observations: np.ndarray) -> np.ndarray:
    """Outputs [b,out] for observations [b,in], each with its own row of parameters."""
    x = observations[:, None, :]
    layers = _layers(params)
    for layer in range(layers):
        x = x @ params[f"w{layer}"] + params[f"b{layer}"][:, None, :]
        if layer < layers - 1:
            x = np.tanh(x)
    return x[:, 0, :]


def gaussian_sample_numpy(
    params: Tensors, observations: np.ndarray, normal: np.ndarray
) -> np.ndarray:
    """`gaussian_mlp`'s actions [b,A]."""
    return _mlp_rows(params, observations) + np.exp(params["log_std"]) * normal


def categorical_sample_numpy(
    params: Tensors, observations: np.ndarray, uniform: np.ndarray
) -> np.ndarray:
    """`categorical_mlp`'s actions [b]."""
    return _categorical_rows(_mlp_rows(params, observations), uniform)


def _categorical_rows(scores: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Actions [b] by the inverse of the distribution function of softmax(scores [b,A])."""
    p = np.exp(scores - scores.max(1, keepdims=True))
    below = (p / p.sum(1, keepdims=True)).cumsum(1)[:, :-1]
    return (uniform[:, None] >= below).sum(1).astype(np.int32)
