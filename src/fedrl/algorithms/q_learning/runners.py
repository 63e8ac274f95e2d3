"""Where a client's local work is done: a runner for each sort of world.

    networks    discrete worlds, compiled or on the host: ε-greedy episodes, a replay, Adam
    tables      worlds known as tables: every entry at once, exactly or by drawn next states

The federation's side of a method knows neither: it asks a `Runner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fedrl.algorithms.q_learning.settings import Settings
from fedrl.algorithms.q_learning.td_step import TDStep
from fedrl.core.policies import TensorPolicy
from fedrl.core.types import Metrics, Range, Tensors
from fedrl.envs.interfaces import DiscreteWorld, TabularWorld

if TYPE_CHECKING:
    import jax


class Start(NamedTuple):
    """Where a client's round starts."""

    envs: Sequence[int]  # the environments behind it
    theta: Tensors  # θ_r
    server: Tensors  # what was sent beside it
    client: Tensors  # what the method lets it keep
    learner: Tensors | None  # what the learner keeps: replay, ε, delayed weights, Adam's means
    seed: int


class End(NamedTuple):
    """How it ended."""

    theta: Tensors  # the client's own
    learner: Tensors
    steps: int  # updates made
    metrics: Metrics
    # Of the round's episodes, if it was any: what they brought, and their steps.
    episodes: tuple[np.ndarray, np.ndarray] | None = None


class Method(Protocol):
    """The hooks that a runner calls, traced by JAX for one client (see `QLearning`)."""

    settings: Settings

    def loss(self, now: TDStep) -> jax.Array: ...


class Runner(Protocol):
    reports: frozenset[str]
    ranges: dict[str, Range]
    heaviest: float
    lr: float
    """Of a client's steps, as they are taken."""
    alike: bool
    """All clients have the same environment."""

    def init(self, seed: int) -> Tensors:
        """θ_0."""

    def precision(self) -> AbstractContextManager[object]:
        """Within it, JAX computes with the runner's numbers."""

    def local(self, starts: Sequence[Start], sign: float) -> list[End]:
        """Rounds of these clients, each as if it were alone; rewards count `sign` times."""

    def warm_up(self, start: Start) -> None:
        """Compile what clients will run."""

    def returns(self, theta: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Mean return of the greedy policy in every client's environment [N]."""

    def policy(self, theta: Tensors) -> TensorPolicy:
        """Greedy by Q."""

    def diagnostics(self, theta: Tensors) -> Metrics:
        """What only exact solutions can tell."""


def make_runner(world: DiscreteWorld | TabularWorld, method: Method, pool: int) -> Runner:
    """The runner that fits the world; a client has the environments of `pool` at most."""
    if isinstance(world, TabularWorld):
        from fedrl.algorithms.q_learning.tables import TableRunner

        return TableRunner(world, method)
    from fedrl.algorithms.q_learning.networks import NetworkRunner

    return NetworkRunner(world, method, pool)


def update_loss(method: Method, now: TDStep) -> jax.Array:
    """What an update goes down: the method's scalar, or the sum of its losses [B] by weight."""
    found = method.loss(now)
    return now.total(found) if found.ndim else found
