"""PAvg, FedSVRPG-M and FedHAPG-M: federated policy gradients with an anchored direction.

Paper: "Momentum for the Win: Collaborative Federated Reinforcement Learning across Heterogeneous
Environments" (ICML 2024), Algorithms 1 and 2.

    round 0     every client: mean of B = ⌈K/(Rβ²)⌉ gradients at θ_0; the server's mean is u_0
    round r     broadcast θ_r, θ_{r-1}, u_r
      client    θ ← θ_r; K times: sample a trajectory, form u_{r,k}, θ ← θ + η u_{r,k}; send θ − θ_r
        svrpg   at θ:     u_{r,k} = g(θ) + (1−β) [u_r − w g(θ_{r-1})]                      (Eq. 4)
        hapg    at θ(α):  u_{r,k} = β w g(θ) + (1−β) [u_r + Λ]                             (Eq. 5)
      server    u_{r+1} = mean Δ / (ηK),   θ_{r+1} = θ_r + λ u_{r+1}

β = 1 with svrpg is PAvg: nothing is anchored, round 0 is skipped, only θ_r is broadcast.
(β = 1 with hapg still samples at θ(α), so it needs θ_{r-1}, but neither u_r nor round 0.)

The clients' K steps are done by the runners of `policy_gradient`, and for tables in closed form by
`local_steps.tabular_kernels`; the importance weight w, Λ and u_{r,k} are in `gradient_estimators`.

Where we differ from the paper, all by settings that are off by default: several trajectories per
local step, a scale on or standardisation of the returns, gradients per step played, local steps
that get shorter with the gradients seen (`adaptive_offset`; the authors' release has them), caps on
the importance weight and on the direction's norm (FedHAPG-M's ⟨∇log p, v⟩ g grows with v, so with H
in the hundreds a constant step diverges without one), a server optimiser other than plain ascent,
cohorts smaller than N (the server's mean is then over the cohort), and clients that take unequal
numbers of local steps. λ defaults to ηK, the value of the paper's Figure 2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedrl.algorithms.momentum import settings as own
from fedrl.algorithms.momentum.settings import Settings
from fedrl.algorithms.policy_gradient import LocalStep, PolicyGradient
from fedrl.algorithms.policy_gradient.runners import Runner, Start, Stats
from fedrl.core import tree
from fedrl.core.types import SHARE, Spec, Tensors, UserError
from fedrl.envs.interfaces import ControlWorld, HostWorld, JaxWorld, TabularWorld

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Array, Params


class Momentum(PolicyGradient):
    """The three methods over any world."""

    Settings = own.Settings
    settings: own.Settings

    def __init__(
        self,
        settings: own.Settings,
        world: ControlWorld,
        rounds: int,
        client_env_ids: Sequence[Sequence[int]],
    ) -> None:
        self.initial_exchange = settings.beta < 1
        self.anchored = self.initial_exchange or settings.method == "hapg"
        if self.anchored:
            self.measures = ("weight_mean", "weight_var", "weight_clipped")
        if settings.method == "hapg":
            self.sampled_at = self.interpolated
        if settings.adaptive_offset:
            self.step_size = self.adaptive_step
        super().__init__(settings, world, rounds, client_env_ids)
        self.ranges["train/weight_clipped"] = SHARE
        self.initial_batch = settings.initial_trajectories or math.ceil(
            settings.local_steps / (max(rounds, 1) * settings.beta**2)
        )
        self.allow_trajectories(
            max(self.initial_batch, settings.most_steps * settings.trajectories)
        )

    @property
    def closed_form(self) -> bool:
        """Whether local steps are those of the table kernel: all clients take as many."""
        world = self.world
        played = isinstance(world, JaxWorld | HostWorld)
        return isinstance(world, TabularWorld) and not played and not self.settings.unequal

    def make_runner(self) -> Runner:
        s, world = self.settings, self.world
        if not self.closed_form and s.policy == "direct":
            raise UserError(
                'algorithm.policy = "direct" is for tabular worlds such as random_mdp, and for '
                "equal numbers of local steps"
            )
        if not (self.closed_form and isinstance(world, TabularWorld)):
            return super().make_runner()
        if s.standardize or s.direction_clip or s.return_scale != 1.0 or s.mean_over_steps:
            raise UserError(
                "algorithm.standardize, direction_clip, return_scale and mean_over_steps are for "
                "sampled worlds; remove them for a tabular one"
            )
        if s.adaptive_offset:
            raise UserError(
                "algorithm.adaptive_offset is for sampled worlds; remove it for a tabular one"
            )
        from fedrl.algorithms.momentum.local_steps.tabular_worlds import TabularRunner

        return TabularRunner(world, s)

    def server_tensors(self, theta: Tensors) -> Tensors:
        return {"previous": theta, "direction": tree.zeros_like(theta)}

    def sent(self, state: Tensors, round: int) -> Tensors:
        sent = {}
        if round > 0 and self.anchored:
            sent["previous"] = state["previous"]
        if round > 0 and self.initial_exchange:
            sent["direction"] = state["direction"]
        return sent

    def direction(self, now: LocalStep) -> Params:
        return self.measured_direction(now)[0]

    def measured_direction(self, now: LocalStep) -> tuple[Params, Tensors]:
        from fedrl.algorithms.momentum import gradient_estimators as estimators

        s = self.settings
        # What was not sent is not read: anything of the right shape will do.
        previous, u = (now.server.get(name, now.start) for name in ("previous", "direction"))
        limits = {"beta": s.beta, "clip": s.weight_clip}
        if s.method == "hapg":
            u, weight, clipped = estimators.hapg(
                now.policy, now.theta, previous, u, now.at, now.batch, now.psi, **limits
            )
        else:
            u, weight, clipped = estimators.svrpg(
                now.policy, now.theta, previous, u, now.batch, now.psi, **limits
            )
        return u, {"weights": weight, "clipped": clipped} if self.anchored else {}

    def adaptive_step(self, now: LocalStep, total: Array) -> tuple[Array, Array]:
        """η_k = lr/(w + c Σ_{j≤k} ‖g_j‖²)^{1/3}, g the gradient that β multiplies, and the sum."""
        import jax

        s = self.settings
        weight: Array | float = 1.0
        if s.method == "hapg":
            weight = now.importance_weight(now.theta, s.weight_clip)
        gradient = now.gradient(weight=weight)
        total = total + sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient))
        return s.lr / (s.adaptive_offset + s.adaptive_factor * total) ** (1 / 3), total

    def interpolated(self, theta: Params, server: Tensors, uniform: Array) -> Params:
        """θ(α), where FedHAPG-M samples."""
        from fedrl.algorithms.momentum.gradient_estimators import interpolate

        return interpolate(theta, server["previous"], uniform)

    def summarize(self, measured: Tensors, mean: Callable[[Array], Array]) -> Tensors:
        weights = measured["weights"]
        centre = mean(weights)
        return {
            "weight_mean": centre,
            "weight_var": mean((weights - centre[None, :, None]) ** 2),
            "weight_clipped": mean(measured["clipped"]),
        }

    def measured(self, round: int) -> tuple[str, ...]:
        """Weights only where there are any."""
        return super().measured(round) if round > 0 else ("return",)

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        """Only a change of θ (in round 0 a mean gradient) leaves a client."""
        return {
            name: Spec(leaf.shape, leaf.dtype.name)
            for name, leaf in tree.leaves(broadcast["theta"])
        }

    def work(
        self, sent: Tensors, start: Start, params: Tensors, seeds: np.ndarray
    ) -> tuple[Tensors, Tensors, Stats]:
        """In round 0 every client's part of u_0."""
        if not (self.initial_exchange and sent["round"] == 0):
            return super().work(sent, start, params, seeds)
        gradient = LocalStep.gradient
        update, stats = self.runner.estimate(gradient, start, params, seeds, self.initial_batch)
        return update, {}, stats

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        if round == 0:
            return {**state, "direction": mean}  # u_0
        direction = self.normalized(mean)  # u_{r+1}
        moved = self.moved(state, direction)
        return {**state, "previous": state["theta"], "direction": direction, **moved}

    @cached_property
    def _reversed(self) -> PolicyGradient:
        world = self.world
        if not (self.closed_form and isinstance(world, TabularWorld)):
            return super()._reversed
        other = copy.copy(self)
        other.world = turned = copy.copy(world)
        turned.rewards = -world.rewards
        return other


def build(
    settings: Settings, world: ControlWorld, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> Momentum:
    return Momentum(settings, world, rounds, client_env_ids)
