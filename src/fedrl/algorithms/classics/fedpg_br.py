"""FedPG-BR: a server that filters its clients' gradients, and then learns with its own eyes.

Paper: Fan et al., "Fault-Tolerant Federated Reinforcement Learning with Theoretical Guarantee"
(NeurIPS 2021), Algorithms 1 and 1.1.

    client    μ_i = mean of g(τ|θ_r) over B trajectories; sends μ_i
    rule      μ = FedPG-Aggregate(μ_1, …)            `[aggregate] name = "fedpg-br"`
    server    θ_0 = θ_r;  N ~ Geom(b/(B+b));  N times, in an environment of its own:
                b trajectories at θ_n,  w = p(τ|θ_0) / p(τ|θ_n)
                v_n = mean [g(τ|θ_n) − w g(τ|θ_0)] + μ,   θ_{n+1} = θ_n + η v_n
              θ_{r+1} = θ_N

The server's environment is one more of the clients' world. Its randomness is derived from a seed in
the state, so that a resumed run draws the same.

Where we differ: N ≥ 1 with mean 1 + B/b, as in the authors' code, so that every round moves (the
paper's Geom has mean B/b and may be 0). The filter is a rule of aggregation of its own, so any
other can take its place, and with the mean it is federated SCSG. B is the same in every round. A
cap on the importance weight and a server optimiser are settings; the authors' code uses Adam.
`standardize`, which most recipes for control set, scales the clients' B and the server's b
trajectories each by their own returns: v_n is then no unbiased estimate. A run says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedrl.algorithms.policy_gradient import LocalStep, PolicyGradient, Settings
from fedrl.algorithms.policy_gradient.algorithm import spread, stack
from fedrl.algorithms.policy_gradient.runners import Runner, Start, Stats, make_runner
from fedrl.core import seeding, tree
from fedrl.core.limits import at_least_one, not_negative
from fedrl.core.types import Metrics, Tensors, UserError, Word
from fedrl.envs.interfaces import ControlWorld

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Params


@dataclass(frozen=True)
class FedPGBRSettings(Settings):
    """Settings of FedPG-BR; `lr` is η of the server's steps, `trajectories` a client's B."""

    # The method.
    name: Word = "fedpg-br"
    # One: a client sends the gradient where it stands, and does not move.
    local_steps: int = 1
    # B: trajectories of a client's gradient.
    trajectories: int = 16
    # b: trajectories of the server's own in each of its steps.
    server_trajectories: int = 4
    # Shift and scale rewards-to-go, the clients' B trajectories and the server's b apart: g(τ|θ_0)
    # of the server is then not the clients' μ on average, and v_n is biased. The paper does not.
    standardize: bool = False
    # Cap on the importance weight; 0 is off.
    weight_clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "algorithm.", "server_trajectories")
        not_negative(self, "algorithm.", "weight_clip")
        if self.local_steps != 1 or self.unequal:
            raise UserError(
                "clients of fedpg-br send one gradient: set algorithm.local_steps = 1, and remove "
                "local_steps_spread and client_steps"
            )


class FedPGBR(PolicyGradient):
    """Gradients filtered against Byzantine clients, then variance-reduced steps of the server."""

    Settings = FedPGBRSettings
    settings: FedPGBRSettings
    server_world: Callable[[], ControlWorld] | None = None

    def direction(self, now: LocalStep) -> Params:
        return now.gradient()

    def work(
        self, sent: Tensors, start: Start, params: Tensors, seeds: np.ndarray
    ) -> tuple[Tensors, Tensors, Stats]:
        update, stats = self.runner.estimate(
            self.direction, start, params, seeds, self.settings.trajectories
        )
        return update, {}, stats

    def semi_stochastic(self, now: LocalStep) -> Params:
        """v_n, at most as long as `direction_clip`."""
        from fedrl.algorithms.policy_gradient.gradient_estimators import shortened

        s, anchor = self.settings, now.server["anchor"]
        there = now.gradient(anchor, now.importance_weight(anchor, s.weight_clip))
        v = tree.map(lambda g, a, m: g - a + m, now.gradient(), there, now.server["mean"])
        return shortened(v, s.direction_clip) if s.direction_clip > 0 else v

    def init(self, seed: int) -> Tensors:
        own = {"server_seed": seeding.derive(seed, "server"), "server_env_steps": 0}
        return {**super().init(seed), **own}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        s, seed, now = self.settings, state["server_seed"], state
        (runner, params), own = self.server, s.server_trajectories
        random = seeding.generator(seed, "inner steps", round)
        for inner in range(random.geometric(own / (s.trajectories + own))):
            known = {"anchor": state["theta"], "mean": mean}
            start = Start(spread(now["theta"], 1), spread(known, 1), {})
            drawn = np.array([seeding.derive(seed, f"inner {inner}", round)], np.uint64)
            v, stats = runner.estimate(self.semi_stochastic, start, params, drawn, own)
            played = now["server_env_steps"] + int(stats["steps"][0])
            moved = self.moved(now, tree.map(lambda leaf: leaf[0], v))
            now = {**now, **moved, "server_env_steps": played}
        return now

    @cached_property
    def server(self) -> tuple[Runner, Tensors]:
        """The server's runner, and its environment in a world with one more than the clients'."""
        if self.server_world is None:
            raise TypeError("set server_world: what makes the world with one environment more")
        world = self.server_world()
        return make_runner(world, self), stack([world.params([world.clients - 1])])

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        played = np.mean([state["server_env_steps"] for state in states])
        metrics = super().evaluate(states, owners, round, seed)
        return {**metrics, "server/env_steps": float(played)}
