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

The clients' K steps are done in `local_steps`; g, the importance weight w, Λ and u_{r,k} are in
`gradient_estimators` (for tables, in closed form, in `local_steps.tabular_kernels`).

Where we differ from the paper, all by settings that are off by default: several trajectories per
local step, a scale on or standardisation of the returns, caps on the importance weight and on the
direction's norm (FedHAPG-M's ⟨∇log p, v⟩ g grows with v, so with H in the hundreds a constant step
diverges without one), a server optimiser other than plain ascent, and cohorts smaller than N (the
server's mean is then over the cohort). λ defaults to ηK, the value of the paper's Figure 2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from fedrl.aggregation import server_optimizers
from fedrl.algorithms.momentum.local_steps import ExactRunner, Start, Stats, make_runner
from fedrl.algorithms.momentum.settings import Settings
from fedrl.core import tree
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Spec, Tensors
from fedrl.envs.interfaces import ControlWorld, TabularWorld

LAST = 100
"""`train/return_last100` is over this many episodes of each client."""
AT_ONCE = 1000
"""Pairs of a policy and an environment in one evaluation call: memory does not grow with N."""


class Momentum:
    """The three methods over any world. Client c acts in the environments `client_env_ids[c]`."""

    def __init__(
        self,
        settings: Settings,
        world: ControlWorld,
        rounds: int,
        client_env_ids: Sequence[Sequence[int]],
    ) -> None:
        self.settings = settings
        self.world = world
        self.client_env_ids = client_env_ids
        self.runner = make_runner(world, settings)
        self.initial_exchange = settings.beta < 1
        self.heaviest = 1.0  # all play the same number of trajectories
        self.anchored = self.initial_exchange or settings.method == "hapg"
        self.reports = frozenset(
            {"env/steps", "train/return_last100", *(f"train/{name}" for name in self.measured(1))}
        )
        self.ranges: dict[str, Range] = {"train/weight_clipped": SHARE}
        self.server_lr = settings.server_lr or settings.lr * settings.local_steps
        self.initial_batch = settings.initial_trajectories or math.ceil(
            settings.local_steps / (max(rounds, 1) * settings.beta**2)
        )
        sampled = max(self.initial_batch, settings.local_steps * settings.trajectories)
        self.ranges["env/steps"] = Range(0, sampled * world.horizon, whole=True)

    def warm_up(self) -> None:
        """Compile what clients will run, with one client's work thrown away."""
        state = self.init(0)
        for round in (0, 1) if self.initial_exchange else (1,):
            self.local(Job(0, self.broadcast(state, round), None, 0))

    def init(self, seed: int) -> Tensors:
        theta = self.runner.init(seed)
        state = {"theta": theta, "previous": theta, "direction": tree.zeros_like(theta)}
        return {**state, **_prefixed(server_optimizers.init(self.settings.server_optimizer, theta))}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        sent = {"round": round, "theta": state["theta"]}
        if round > 0 and self.anchored:
            sent["previous"] = state["previous"]
        if round > 0 and self.initial_exchange:
            sent["direction"] = state["direction"]
        return sent

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        """Only a change of θ (in round 0 a mean gradient) leaves a client."""
        return {
            name: Spec(leaf.shape, leaf.dtype.name)
            for name, leaf in tree.leaves(broadcast["theta"])
        }

    def local(self, job: Job) -> Result:
        return self.local_many([job])[0]

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        """All clients of one broadcast in one call; `local` is the same call with one client."""
        sent, count = jobs[0].broadcast, len(jobs)
        params = stack([self.world.params(self.client_env_ids[job.client]) for job in jobs])
        seeds = np.array([job.seed for job in jobs], np.uint64)
        # What was not sent is not read: anything of the right shape will do.
        known = (sent[name] if name in sent else sent["theta"] for name in Start._fields)
        start = Start(*(spread(tensors, count) for tensors in known))
        if self.initial_exchange and sent["round"] == 0:
            updates, stats = self.runner.initial_exchange(
                start.theta, params, seeds, self.initial_batch
            )
        else:
            updates, stats = self.runner.local(start, params, seeds)
        return [self._result(job, i, updates, stats) for i, job in enumerate(jobs)]

    def poisoned(self, job: Job) -> Result:
        """A client's work if all its rewards had the other sign."""
        return self._reversed.local(job)

    @cached_property
    def _reversed(self) -> Momentum:
        other = copy.copy(self)
        if isinstance(self.world, TabularWorld):
            other.world = world = copy.copy(self.world)
            world.rewards = -self.world.rewards
        else:
            other.settings = replace(self.settings, return_scale=-self.settings.return_scale)
            other.runner = make_runner(self.world, other.settings)
        return other

    def measured(self, round: int) -> tuple[str, ...]:
        """What a client's round says of itself; weights only where there are any."""
        weights = ("weight_mean", "weight_var", "weight_clipped")
        return ("return", *weights) if self.anchored and round > 0 else ("return",)

    def _result(self, job: Job, i: int, updates: Tensors, stats: Stats) -> Result:
        metrics = {
            f"train/{name}": float(stats[name][i]) for name in self.measured(job.broadcast["round"])
        }
        metrics["env/steps"] = float(stats["steps"][i])
        state = job.state
        if "returns" in stats:
            before = np.zeros(0, np.float32) if job.state is None else job.state["returns"]
            recent = np.concatenate([before, stats["returns"][i]])[-LAST:]
            metrics["train/return_last100"] = float(recent.mean())
            state = {"returns": recent.astype(np.float32)}
        update = {name: np.asarray(leaf[i]) for name, leaf in updates.items()}
        return Result(job.client, update, state=state, metrics=metrics)

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        if round == 0:
            return {**state, "direction": mean}  # u_0
        s = self.settings
        scale = 1.0 / (s.lr * s.local_steps)
        direction = tree.map(lambda d: (scale * d).astype(d.dtype), mean)  # u_{r+1}
        theta, optimizer = server_optimizers.apply(
            s.server_optimizer, _unprefixed(state), state["theta"], direction, self.server_lr
        )
        if isinstance(self.runner, ExactRunner):
            theta = self.runner.project(theta)
        return {
            "theta": theta,
            "previous": state["theta"],
            "direction": direction,
            **_prefixed(optimizer),
        }

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """Average performance J over all environments; over a state's own where these differ."""
        theta = stack([state["theta"] for state in states])
        params = self.environments(len(states))
        per_client = self.returns(theta, params, [seed] * len(states), self.settings.eval_episodes)
        metrics = {
            "eval/return": float(per_client.mean()),
            "eval/return_min": float(per_client.min(1).mean()),
        }
        if any(len(own) < self.world.clients for own in owners):
            own = [row[list(clients)].mean() for row, clients in zip(per_client, owners)]
            metrics["eval/return_own"] = float(np.mean(own))
        exact = self.diagnostics(stack(states), params)
        return metrics | {name: float(values.mean()) for name, values in exact.items()}

    def diagnostics(self, state: Tensors, params: Tensors) -> Stats:
        """Per server state [S] what only exact solutions can tell; nothing for sampled worlds."""
        runner = self.runner
        return runner.diagnostics(state, params) if isinstance(runner, ExactRunner) else {}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Mean return of one policy in every client's environment [N]."""
        return self.returns(stack([state["theta"]]), self.environments(1), [seed], episodes)[0]

    @cached_property
    def _everyone(self) -> Tensors:
        return stack([self.world.params([i]) for i in range(self.world.clients)])

    def environments(self, copies: int) -> Tensors:
        """All clients' environments, [copies, N, …], without a copy."""
        return spread(self._everyone, copies)

    def returns(
        self, theta: Tensors, params: Tensors, seeds: Sequence[int], episodes: int
    ) -> np.ndarray:
        """Mean return [S,N] of S policies, each in its N environments (params [S,N,…])."""
        policies, clients = len(seeds), self.world.clients
        count = policies * clients
        drawn = np.concatenate(
            [np.random.SeedSequence(int(s)).generate_state(clients, np.uint64) for s in seeds]
        )
        values = []
        for first in range(0, count, size := min(count, AT_ONCE)):
            # The last chunk repeats its last pair: one shape, one compiled program.
            pair = np.minimum(np.arange(first, first + size), count - 1)
            policy, client = np.divmod(pair, clients)
            here = tree.map(lambda x, i=policy: x[i], theta)
            there = tree.map(lambda x, i=policy, j=client: x[i, j], params)
            values.append(self.runner.returns(here, there, drawn[pair], episodes).mean(-1))
        return np.concatenate(values)[:count].reshape(policies, clients)


def build(
    settings: Settings, world: ControlWorld, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> Momentum:
    return Momentum(settings, world, rounds, client_env_ids)


def stack(trees: Sequence[Tensors]) -> Tensors:
    """One tree with a new leading axis; an optimiser's count of steps is the same in all."""
    return tree.map(
        lambda *leaves: np.stack(leaves) if isinstance(leaves[0], np.ndarray) else leaves[0],
        *trees,
    )


def spread(params: Tensors, count: int) -> Tensors:
    """The same parameters for `count` pairs, without a copy."""
    return tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), params)


def _prefixed(optimizer: Tensors) -> Tensors:
    return {f"optimizer.{name}": value for name, value in optimizer.items()}


def _unprefixed(state: Tensors) -> Tensors:
    return {k.removeprefix("optimizer."): v for k, v in state.items() if k.startswith("optimizer.")}
