"""Local rounds of PAvg, FedSVRPG-M and FedHAPG-M for table policies in random MDPs.

Paper: Momentum for the Win (Algorithms 1 and 2). Per pair (seed, client), K times:

    svrpg   τ ~ θ_k;   u_k = β g(τ|θ_k) + (1-β) [u + g(τ|θ_k) - w g(τ|θ_prev)]
    hapg    α ~ U[0,1], τ ~ θ(α) = α θ_prev + (1-α) θ_k;
            u_k = β w g(τ|θ_k) + (1-β) [u + Λ]
    θ_{k+1} = θ_k + η u_k, then Δ = θ_K - θ_0

Where we differ: the paper says that FedHAPG-M cannot be assessed on tables because J is not twice
differentiable; for softmax logits it is, so hapg runs there. The direct parametrisation (θ is the
policy itself) stays on {θ ≥ floor, Σ_a θ = 1} by Euclidean projection after each local step and
after the server's: without a floor the importance weight has no bound. Evaluation is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedrl.algorithms.momentum.local_steps import tabular_kernels as kernels
from fedrl.algorithms.momentum.settings import Settings
from fedrl.algorithms.policy_gradient.local_step import LocalStep
from fedrl.algorithms.policy_gradient.runners import Start, Stats
from fedrl.core.types import Tensors, UserError
from fedrl.envs.control import random_mdp
from fedrl.envs.interfaces import TabularWorld

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Params

Floats = NDArray[np.float64]


class TabularRunner:
    """Batches of local rounds for one kind of world; trees have one leaf of shape [B,S,A].

    `params` come from `World.params`: kernels [B,n,S,A,S] and rewards [B,n,S,A]. A pair's result
    depends on its own inputs and seed only, not on its batch or on the number of threads.
    """

    def __init__(self, world: TabularWorld, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self.direct = settings.policy == "direct"
        self.name = "probabilities" if self.direct else "logits"
        actions = world.rewards.shape[1]
        if self.direct and not 0 < settings.floor < 1 / actions:
            raise UserError(
                f"algorithm.floor = {settings.floor}: use a number in (0, 1/{actions})"
                " for the direct policy"
            )

    def init(self, seed: int) -> Tensors:
        """θ_0, the uniform policy; it needs no randomness, so `seed` changes nothing."""
        shape = self.world.rewards.shape
        return {self.name: np.full(shape, 1.0 / shape[1] if self.direct else 0.0)}

    def estimate(
        self,
        hook: Callable[[LocalStep], Params],
        start: Start,
        params: Tensors,
        seeds: NDArray[np.uint64],
        count: int,
    ) -> tuple[Tensors, Stats]:
        """Mean of `count` gradients g(τ|θ): the only hook that has a closed form here."""
        if hook is not LocalStep.gradient:
            raise TypeError("of tables in closed form only the gradient itself is known")
        rules = self._rules()._replace(
            local_steps=1, trajectories=count, beta=1.0, hapg=False, raw=True
        )
        return self._run(start, params, seeds, rules)

    def local(
        self, start: Start, params: Tensors, seeds: NDArray[np.uint64]
    ) -> tuple[Tensors, Tensors, Stats]:
        """From θ, `previous` and `direction`. `weight_*` are of the weights as used, after
        clipping; with β = 1 (svrpg) no weight is computed, and they say 1, 0, 0.
        """
        update, stats = self._run(start, params, seeds, self._rules())
        return update, {}, stats

    def project(self, theta: Tensors) -> Tensors:
        """θ back into the feasible set, for tables with any leading axes."""
        if not self.direct:
            return theta
        table = np.array(theta[self.name], np.float64)
        kernels.project(table.reshape(1, -1, table.shape[-1]), 0, self.settings.floor)
        return {self.name: table}

    def returns(
        self, theta: Tensors, params: Tensors, seeds: NDArray[np.uint64], episodes: int
    ) -> Floats:
        """Exact, so one "episode" says it all."""
        return self._performance(self._policy(theta), params)[:, None]

    def diagnostics(self, state: Tensors, params: Tensors) -> Stats:
        """`grad_norm_sq` is ‖∇J(θ_r)‖², the theory's yardstick; `direction_error` is Σ_r of its
        proofs, ‖u_{r+1} − ∇J(θ_r)‖²: how far the server's direction is from the true one.
        """
        slope = self.tangent(self.exact_gradient(state["theta"], params))
        before = self.exact_gradient(state["previous"], params, self.world.horizon)
        error = self.tangent(state["direction"][self.name] - before)
        return {
            "eval/grad_norm_sq": (slope**2).sum((-2, -1)),
            "eval/direction_error": (error**2).sum((-2, -1)),
        }

    def exact_gradient(self, theta: Tensors, params: Tensors, horizon: int | None = None) -> Floats:
        """∇J(θ) [S_,S,A] of the average J over environments [S_,N]; of J_H where H is given."""
        world = self.world
        if horizon is not None and world.gamma**horizon < 1e-12:
            horizon = None  # the same number, without a recursion over hundreds of steps
        return random_mdp.gradient(
            self._policy(theta)[:, None],
            params["kernel"][..., 0, :, :, :],
            params["reward"][..., 0, :, :],
            world.initial,
            world.gamma,
            "direct" if self.direct else "softmax",
            horizon,
        ).mean(axis=-3)

    def tangent(self, slope: Floats) -> Floats:
        """The part of a gradient along which θ may move: for the direct policy Σ_a = 0."""
        return slope - slope.mean(axis=-1, keepdims=True) if self.direct else slope

    def _policy(self, theta: Tensors) -> Floats:
        table = theta[self.name]
        return table if self.direct else random_mdp.softmax(table)

    def _performance(self, policy: Floats, params: Tensors) -> Floats:
        return random_mdp.performance(
            policy,
            params["kernel"][..., 0, :, :, :],
            params["reward"][..., 0, :, :],
            self.world.initial,
            self.world.gamma,
        )

    def _rules(self) -> kernels.Rules:
        s = self.settings
        return kernels.Rules(
            initial=self.world.initial,
            horizon=self.world.horizon,
            gamma=float(self.world.gamma),
            local_steps=s.local_steps,
            trajectories=s.trajectories,
            lr=float(s.lr),
            beta=float(s.beta),
            weight_clip=float(s.weight_clip),
            hapg=s.method == "hapg",
            direct=self.direct,
            floor=float(s.floor),
            raw=False,
        )

    def _run(
        self, start: Start, params: Tensors, seeds: NDArray[np.uint64], rules: kernels.Rules
    ) -> tuple[Tensors, Stats]:
        theta, anchor, u, kernel, reward = (
            np.ascontiguousarray(array, np.float64)
            for array in (
                # What was not sent is not read: anything of the right shape will do.
                start.theta[self.name],
                start.server.get("previous", start.theta)[self.name],
                start.server.get("direction", start.theta)[self.name],
                params["kernel"],
                params["reward"],
            )
        )
        numbers = np.ascontiguousarray(seeds, np.uint64)
        pairs = kernels.Pairs(theta, anchor, u, kernel, reward, numbers)
        out, stats = kernels.run(pairs, rules)
        steps = rules.local_steps * rules.trajectories * rules.horizon
        return {self.name: out}, {
            "return": stats[:, kernels.RETURN],
            "weight_mean": stats[:, kernels.WEIGHT_MEAN],
            "weight_var": stats[:, kernels.WEIGHT_VAR],
            "weight_clipped": stats[:, kernels.CLIPPED],
            "steps": np.full(len(out), steps, np.int64),
        }
