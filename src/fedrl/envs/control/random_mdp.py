"""Random MDPs of Table 2: N kernels around a nominal one, and everything about them exactly.

P_i = κ P_i' + (1 - κ) P_0 with one reward table R ~ U(0,1) and a uniform first state for all. V, Q,
the discounted visitation, J and ∇J come from linear solves over any leading batch axes, so the
theory's own yardstick ‖∇J‖² carries no sampling error.

Paper: Momentum for the Win (sections 3 and 7, appendix E.1). It says both "uniformly sampled" and
"Bernoulli distributed" of its kernels; with plain uniform ones κ hardly changes the attainable
value, so masked and non-overlapping (orthogonal) kernels are here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrl.core.seeding import generator
from fedrl.core.types import Tensors, UserError

Floats = NDArray[np.float64]
Parametrisation = Literal["softmax", "direct"]


@dataclass(frozen=True)
class Settings:
    """N random MDPs with common states, actions and rewards."""

    name: Literal["random_mdp"] = "random_mdp"
    # Number of states |S|.
    states: int = 5
    # Number of actions |A|.
    actions: int = 5
    # Discount factor γ.
    gamma: float = 0.9
    # Steps H of a sampled trajectory; exact values have no horizon.
    horizon: int = 500
    # Heterogeneity κ: 0 gives everybody the nominal kernel, 1 gives each client its own.
    kappa: float = 0.0
    # How kernels are drawn; orthogonal: neighbours' own transitions never overlap.
    kernel: Literal["uniform", "bernoulli", "orthogonal"] = "uniform"
    # Share of non-zero entries of a bernoulli kernel.
    density: float = 0.5

    def __post_init__(self) -> None:
        for key, least in (("states", 1), ("actions", 1), ("horizon", 1)):
            if getattr(self, key) < least:
                raise UserError(f"world.{key} = {getattr(self, key)}: use {least} or more")
        if not 0 <= self.gamma < 1:
            raise UserError(f"world.gamma = {self.gamma}: use a number in [0, 1)")
        if not 0 <= self.kappa <= 1:
            raise UserError(f"world.kappa = {self.kappa}: use a number from 0 to 1")
        if not 0 < self.density <= 1:
            raise UserError(f"world.density = {self.density}: use a number in (0, 1]")
        if self.kernel not in ("uniform", "bernoulli", "orthogonal"):
            raise UserError(
                f'world.kernel = "{self.kernel}": use "uniform", "bernoulli" or "orthogonal"'
            )
        if self.kernel == "orthogonal" and self.states < 2:
            raise UserError("world.states = 1: orthogonal kernels need 2 or more")


class World:
    """The clients' MDPs: `kernels` [N,S,A,S], the common `rewards` [S,A] and `initial` [S].

    R, P_0 and P_i' depend on the seed (and on i) only: worlds of one seed that differ in κ share
    them, and further clients leave the earlier ones as they are.
    """

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        if clients < 1:
            raise UserError(f"federation.clients = {clients}: use 1 or more")
        self.settings = settings
        self.clients = clients
        self.horizon = settings.horizon
        self.gamma = settings.gamma
        shape = (settings.states, settings.actions)
        self.initial: Floats = np.full(settings.states, 1.0 / settings.states)
        self.rewards: Floats = generator(seed, "random_mdp/rewards").random(shape)
        nominal = _kernel(settings, generator(seed, "random_mdp/nominal"), None)
        own = np.stack(
            [
                _kernel(settings, generator(seed, "random_mdp/own", client=client), mask)
                for client, mask in enumerate(_masks(settings, clients, seed))
            ]
        )
        self.kernels: Floats = settings.kappa * own + (1 - settings.kappa) * nominal
        self.kernels /= self.kernels.sum(axis=-1, keepdims=True)

    def params(self, clients: Sequence[int]) -> Tensors:
        """What the learner of these clients' environments gets; several make one pooled learner."""
        kernel = self.kernels[list(clients)]
        return {"kernel": kernel, "reward": np.repeat(self.rewards[None], len(kernel), axis=0)}


def _masks(settings: Settings, clients: int, seed: int) -> list[NDArray[np.bool_] | None]:
    """Where each client's own kernel may be non-zero: M for even clients, elsewhere for odd."""
    if settings.kernel != "orthogonal":
        return [None] * clients
    rng = generator(seed, "random_mdp/mask")
    mask = rng.random((settings.states, settings.actions, settings.states)) < 0.5
    while (flat := mask.all(axis=-1) | ~mask.any(axis=-1)).any():
        mask[flat] = rng.random((int(flat.sum()), settings.states)) < 0.5
    return [mask if client % 2 == 0 else ~mask for client in range(clients)]


def _kernel(settings: Settings, rng: np.random.Generator, mask: NDArray[np.bool_] | None) -> Floats:
    shape = (settings.states, settings.actions, settings.states)
    entries = 1 - rng.random(shape)  # (0, 1]: no row can sum to zero
    if settings.kernel == "bernoulli":
        kept = rng.random(shape) < settings.density
        spare = rng.integers(settings.states, size=shape[:2])[..., None]
        kept |= ~kept.any(axis=-1, keepdims=True) & (np.arange(settings.states) == spare)
        entries = entries * kept
    if mask is not None:
        entries = entries * mask
    return entries / entries.sum(axis=-1, keepdims=True)


def softmax(logits: Floats) -> Floats:
    """π_θ [..., S, A] of a table of logits."""
    exponential = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponential / exponential.sum(axis=-1, keepdims=True)


def values(policy: Floats, kernel: Floats, reward: Floats, gamma: float) -> tuple[Floats, Floats]:
    """V^π [..., S] and Q^π [..., S, A], from (I - γ P_π) V = R_π."""
    expected = np.sum(policy * reward, axis=-1)
    value = np.linalg.solve(_resolvent(policy, kernel, gamma), expected[..., None])[..., 0]
    return value, _backup(kernel, reward, value, gamma)


def visitation(policy: Floats, kernel: Floats, initial: Floats, gamma: float) -> Floats:
    """d(s) = Σ_t γ^t P(s_t = s), which sums to 1/(1 - γ)."""
    matrix = _resolvent(policy, kernel, gamma).swapaxes(-1, -2)
    first = np.broadcast_to(initial, matrix.shape[:-1])
    return np.asarray(np.linalg.solve(matrix, first[..., None])[..., 0], np.float64)


def performance(
    policy: Floats,
    kernel: Floats,
    reward: Floats,
    initial: Floats,
    gamma: float,
    horizon: int | None = None,
) -> Floats:
    """J = E Σ_{t<H} γ^t r_t; no horizon means H = ∞."""
    if horizon is None:
        return values(policy, kernel, reward, gamma)[0] @ initial
    value = np.zeros(np.broadcast_shapes(policy.shape, kernel.shape[:-1])[:-1])
    for _ in range(horizon):
        value = np.sum(policy * _backup(kernel, reward, value, gamma), axis=-1)
    return value @ initial


def gradient(
    policy: Floats,
    kernel: Floats,
    reward: Floats,
    initial: Floats,
    gamma: float,
    parametrisation: Parametrisation = "softmax",
    horizon: int | None = None,
) -> Floats:
    """∇J [..., S, A] in the logits of a softmax policy or in the probabilities themselves (direct).

    With a horizon it is exactly the mean of the trajectory estimator g(τ|θ).
    """
    if horizon is None:
        _, action_values = values(policy, kernel, reward, gamma)
        direct = visitation(policy, kernel, initial, gamma)[..., None] * action_values
    else:
        direct = _finite_direct_gradient(policy, kernel, reward, initial, gamma, horizon)
    if parametrisation == "direct":
        return direct
    # d(s) π(a|s) [Q(s,a) - V(s)], summed over t where the horizon is finite
    return policy * (direct - np.sum(policy * direct, axis=-1, keepdims=True))


def upper_bound(kernel: Floats, reward: Floats, initial: Floats, gamma: float) -> Floats:
    """The mean over clients of each client's own best J, an upper bound on what is attainable.

    `kernel` is [..., N, S, A, S]. No common policy can do better; in general none reaches it,
    because the clients' optimal policies differ. Policy iteration.
    """
    reward = np.broadcast_to(reward, kernel.shape[:-1])
    actions = np.arange(reward.shape[-1])
    choice = reward.argmax(axis=-1)
    while True:
        policy = (actions == choice[..., None]).astype(np.float64)
        value, action_values = values(policy, kernel, reward, gamma)
        # a strict gain: ties must not flip for ever
        better = action_values.max(axis=-1) > value + 1e-12 / (1 - gamma)
        if not better.any():
            return (value @ initial).mean(axis=-1)
        choice = np.where(better, action_values.argmax(axis=-1), choice)


def _resolvent(policy: Floats, kernel: Floats, gamma: float) -> Floats:
    """I - γ P_π [..., S, S]."""
    return np.eye(kernel.shape[-1]) - gamma * np.einsum("...sa,...sat->...st", policy, kernel)


def _backup(kernel: Floats, reward: Floats, value: Floats, gamma: float) -> Floats:
    return reward + gamma * np.einsum("...sat,...t->...sa", kernel, value)


def _finite_direct_gradient(
    policy: Floats, kernel: Floats, reward: Floats, initial: Floats, gamma: float, horizon: int
) -> Floats:
    """Σ_{t<H} γ^t P(s_t = s) Q_t(s,a), Q_t with H - t steps to go: back for Q, forth for P."""
    value = np.zeros(np.broadcast_shapes(policy.shape, kernel.shape[:-1])[:-1])
    to_go = []
    for _ in range(horizon):
        to_go.append(_backup(kernel, reward, value, gamma))
        value = np.sum(policy * to_go[-1], axis=-1)
    transition = gamma * np.einsum("...sa,...sat->...st", policy, kernel)
    weight = np.broadcast_to(initial, value.shape)
    total = np.zeros_like(to_go[0])
    for action_values in reversed(to_go):
        total += weight[..., None] * action_values
        weight = np.einsum("...s,...st->...t", weight, transition)
    return total
