"""Where a client's K local steps are done: a runner for each sort of control world.

    jax_worlds       worlds written in JAX: the whole local round is one compiled program
    host_worlds      worlds that play on the host (MuJoCo): each step's direction is compiled
    tabular_worlds   table policies in random MDPs: a numba kernel, exact evaluation

The loop over clients and rounds knows none of them: it asks a `Runner`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrl.algorithms.momentum.settings import Settings
from fedrl.core.types import Tensors, UserError
from fedrl.envs.interfaces import ControlWorld, HostWorld, JaxWorld, TabularWorld

Stats = dict[str, np.ndarray]
"""What clients report, [B] each: return, weight_mean, weight_var, weight_clipped, steps; `returns`
[B, n] of single episodes where they are played one by one."""


class Start(NamedTuple):
    """Where a round's local steps start, leaves [B, …]; what β = 1 does not read is ignored."""

    theta: Tensors  # θ_r
    previous: Tensors  # θ_{r-1}
    direction: Tensors  # u_r


class Runner(Protocol):
    """Local work of B pairs of a seed and a client at once.

    A pair's result depends on its own parameters, environment `params` and seed only.
    """

    def init(self, seed: int, /) -> Tensors:
        """θ_0 of one policy."""

    def initial_exchange(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, batch: int
    ) -> tuple[Tensors, Stats]:
        """Mean of `batch` gradients g(τ|θ_0) of every pair: the client's part of u_0."""

    def local(self, start: Start, params: Tensors, seeds: np.ndarray) -> tuple[Tensors, Stats]:
        """Δ = θ_{r,K} − θ_r of every pair, and what happened on the way."""

    def returns(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, episodes: int
    ) -> np.ndarray:
        """Undiscounted returns [B, episodes] of fresh episodes; exact J [B, 1] of tables."""


@runtime_checkable
class ExactRunner(Runner, Protocol):
    """A runner that knows its world exactly, and whose parameters may have to be feasible."""

    def project(self, theta: Tensors) -> Tensors:
        """θ back into the feasible set."""

    def diagnostics(self, state: Tensors, params: Tensors) -> Stats:
        """What only exact solutions can tell, per server state [S]."""


def make_runner(world: ControlWorld, settings: Settings) -> Runner:
    """The runner that fits the world."""
    if isinstance(world, TabularWorld):
        from fedrl.algorithms.momentum.local_steps.tabular_worlds import TabularRunner

        if settings.standardize or settings.direction_clip or settings.return_scale != 1.0:
            raise UserError(
                "algorithm.standardize, direction_clip and return_scale are for sampled worlds; "
                "remove them for a tabular one"
            )
        return TabularRunner(world, settings)
    if settings.policy != "softmax":
        raise UserError('algorithm.policy = "direct" is for tabular worlds such as random_mdp')
    from fedrl.algorithms.momentum.policies import network_policy

    if isinstance(world, JaxWorld):
        from fedrl.algorithms.momentum.local_steps.jax_worlds import JaxRunner

        return JaxRunner(world, settings, network_policy(world, settings.log_std))
    if isinstance(world, HostWorld):
        from fedrl.algorithms.momentum.local_steps.host_worlds import HostRunner

        return HostRunner(world, settings, network_policy(world, settings.log_std))
    raise TypeError(f"{type(world).__name__} is no control world: see fedrl.envs.interfaces")
