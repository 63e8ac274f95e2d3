"""Where a client's K local steps are done: a runner for each sort of control world.

    jax_worlds       worlds written in JAX: the whole local round is one compiled program
    host_worlds      worlds that play on the host (MuJoCo, NumPy): each step's direction is compiled
    tables           worlds known as tables: played in JAX, evaluated exactly

The loop over clients and rounds knows none of them: it asks a `Runner`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrl.algorithms.policy_gradient.local_step import LocalStep
from fedrl.algorithms.policy_gradient.settings import Settings
from fedrl.core.types import Tensors
from fedrl.envs.interfaces import ControlWorld, HostWorld, JaxWorld, TabularWorld

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Array, Params

Stats = dict[str, np.ndarray]
"""What clients report, [B] each: return, steps, and what the method measures; `returns` [B, n] of
single episodes where they are played one by one."""


class Start(NamedTuple):
    """Where a round's local steps start, leaves [B, …]."""

    theta: Tensors  # θ_r
    server: Tensors  # what was sent beside it
    client: Tensors  # what the client kept
    steps: np.ndarray | Array | None = None  # K_i [B]; None where all take the same number


class Method(Protocol):
    """The hooks that a runner calls, all traced by JAX for one client (see `PolicyGradient`)."""

    sampled_at: Callable[[Params, Tensors, Array], Params] | None
    step_size: Callable[[LocalStep, Array], tuple[Array, Array]] | None

    @property
    def settings(self) -> Settings: ...

    def measured_direction(self, now: LocalStep) -> tuple[Params, Tensors]: ...

    def summarize(self, measured: Tensors, mean: Callable[[Array], Array]) -> Tensors: ...

    def finish(
        self, start: Params, last: Params, server: Tensors, client: Tensors, steps: Array
    ) -> tuple[Tensors, Tensors]: ...


class Runner(Protocol):
    """Local work of B pairs of a seed and a client at once.

    A pair's result depends on its own parameters, environment `params` and seed only.
    """

    def init(self, seed: int, /) -> Tensors:
        """θ_0 of one policy."""

    def local(
        self, start: Start, params: Tensors, seeds: np.ndarray
    ) -> tuple[Tensors, Tensors, Stats]:
        """What every pair sends and keeps after its K steps, and what happened on the way."""

    def estimate(
        self,
        hook: Callable[[LocalStep], Params],
        start: Start,
        params: Tensors,
        seeds: np.ndarray,
        count: int,
    ) -> tuple[Tensors, Stats]:
        """`hook` at θ for `count` fresh trajectories of every pair; nothing moves."""

    def returns(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, episodes: int
    ) -> np.ndarray:
        """Undiscounted returns [B, episodes] of fresh episodes; exact J [B, 1] of tables."""


@runtime_checkable
class ExactRunner(Protocol):
    """A runner that knows its world exactly, and whose parameters may have to be feasible."""

    def project(self, theta: Tensors) -> Tensors:
        """θ back into the feasible set."""

    def diagnostics(self, state: Tensors, params: Tensors) -> Stats:
        """What only exact solutions can tell, per server state [S]."""


def make_runner(world: ControlWorld, method: Method) -> Runner:
    """The runner that fits the world; one that can play itself is not read as tables."""
    from fedrl.algorithms.policy_gradient.policies import network_policy

    if isinstance(world, JaxWorld):
        from fedrl.algorithms.policy_gradient.runners.jax_worlds import JaxRunner

        return JaxRunner(world, method, network_policy(world, method.settings.log_std))
    if isinstance(world, HostWorld):
        from fedrl.algorithms.policy_gradient.runners.host_worlds import HostRunner

        return HostRunner(world, method, network_policy(world, method.settings.log_std))
    if isinstance(world, TabularWorld):
        from fedrl.algorithms.policy_gradient.runners.tables import TableRunner

        return TableRunner(world, method)
    raise TypeError(f"{type(world).__name__} is no control world: see fedrl.envs.interfaces")
