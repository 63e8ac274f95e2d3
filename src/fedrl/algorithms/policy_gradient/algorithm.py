"""A federated policy gradient, written by its local direction.

    server    broadcast θ_r, and what the method sends beside it
      client  θ ← θ_r; K_i times: sample M trajectories at θ, u ← direction(…), θ ← θ + η u
              finish(…): what is sent, by default θ − θ_r, and what is kept until the next round
    server    u_{r+1} = mean Δ / (ηK),   θ_{r+1} = θ_r + λ u_{r+1}

A method is a subclass. It must say `direction`, and may say more:

    direction(now)                                    u_{r,k} of one client, traced by JAX
    server_tensors(theta)                             what the server holds beside θ at first
    sent(state, round)                                what it broadcasts of that; all by default
    client_tensors(theta)                             what a client keeps before its first round
    finish(start, last, server, client, steps)        (what is sent, what is kept); traced by JAX
    step(state, mean, round)                          the server's step
    work(sent, start, params, seeds)                  a client's round where it is no K steps at all

The rest is here, and the same for worlds in JAX, on the host and in tables (`runners`): state is
explicit, many clients are one compiled call, clients' numbers of local steps may differ, rewards
can be turned round (`poisoned`), tables are evaluated exactly.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedrl.aggregation import server_optimizers
from fedrl.algorithms.policy_gradient import settings as shared
from fedrl.algorithms.policy_gradient.local_step import LocalStep
from fedrl.algorithms.policy_gradient.runners import (
    ExactRunner,
    Runner,
    Start,
    Stats,
    make_runner,
)
from fedrl.core import seeding, tree
from fedrl.core.policies import TensorPolicy, of_parameters
from fedrl.core.types import Job, Metrics, Range, Result, Spec, Tensors, UserError
from fedrl.envs.interfaces import ControlWorld, seen_and_played

if TYPE_CHECKING:
    from fedrl.algorithms.policy_gradient.policies import Array, Params

LAST = 100
"""`train/return_last100` is over this many episodes of each client."""
AT_ONCE = 1000
"""Pairs of a policy and an environment in one evaluation call: memory does not grow with N."""
OPTIMIZER = "optimizer."
"""The server optimiser's tensors are named so in the state."""


class PolicyGradient(ABC):
    """A method over any control world. Client c acts in the environments `client_env_ids[c]`."""

    Settings: ClassVar[type[shared.Settings]] = shared.Settings
    settings: shared.Settings
    kinds: ClassVar[tuple[str, ...]] = ("control",)
    measures: tuple[str, ...] = ()
    """Names of what `summarize` tells; a client reports them as `train/NAME`."""

    initial_exchange = False
    heaviest = 1.0  # all play as they can: none counts more
    sampled_at: Callable[[Params, Tensors, Array], Params] | None = None
    """`(theta, server, uniform) -> θ` at which a step's trajectories are drawn, if not at θ_{r,k};
    `uniform` is a number of [0, 1). Plain arithmetic: on the host it is given NumPy's arrays."""
    step_size: Callable[[LocalStep, Array], tuple[Array, Array]] | None = None
    """`(now, total) -> (η_k, total)` where steps are not all η: `total` is any number that a client
    carries from step to step, 0 at first. Δ is then scaled to Σ_k η_k = ηK: u is the steps' mean,
    whatever their lengths."""

    def __init__(
        self,
        settings: shared.Settings,
        world: ControlWorld,
        rounds: int,
        client_env_ids: Sequence[Sequence[int]],
    ) -> None:
        self.settings = settings
        self.world = world
        self.client_env_ids = client_env_ids
        self.server_lr = settings.server_lr or settings.lr * settings.local_steps
        self.reports = frozenset(
            {"env/steps", "train/return_last100", "train/return"}
            | {f"train/{name}" for name in self.measures}
        )
        self.ranges: dict[str, Range] = {}
        self.allow_trajectories(settings.most_steps * settings.trajectories)
        self.runner = self.make_runner()

    # What a method says.

    @abstractmethod
    def direction(self, now: LocalStep) -> Params:
        """u_{r,k}, uphill: θ ← θ + η u_{r,k}."""

    def server_tensors(self, theta: Tensors) -> Tensors:
        """What the server holds beside θ before the first round."""
        return {}

    def sent(self, state: Tensors, round: int) -> Tensors:
        """What it broadcasts of `state` beside θ."""
        return {name: state[name] for name in self.server_tensors(state["theta"])}

    def client_tensors(self, theta: Tensors) -> Tensors:
        """What a client keeps before its first round; θ is the server's, for shapes."""
        return {}

    def finish(
        self, start: Params, last: Params, server: Tensors, client: Tensors, steps: Array
    ) -> tuple[Tensors, Tensors]:
        """What a client sends, and what it keeps, after `steps` steps from θ_r to θ_{r,K}."""
        return tree.map(lambda there, here: there - here, last, start), client

    def measured_direction(self, now: LocalStep) -> tuple[Params, Tensors]:
        """`direction`, and numbers [M] per trajectory that `summarize` is given."""
        return self.direction(now), {}

    def summarize(self, measured: Tensors, mean: Callable[[Array], Array]) -> Tensors:
        """Of measured numbers [K,B,M] what clients report [B], by the names in `measures`."""
        return {name: mean(values) for name, values in measured.items()}

    def work(
        self, sent: Tensors, start: Start, params: Tensors, seeds: np.ndarray
    ) -> tuple[Tensors, Tensors, Stats]:
        """A round of B clients: what they send, keep and report; leaves [B,…]."""
        return self.runner.local(start, params, seeds)

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        """θ_{r+1} = θ_r + λ mean Δ / (ηK), by the server's optimiser."""
        return {**state, **self.moved(state, self.normalized(mean))}

    # What the hooks may use.

    def normalized(self, change: Tensors) -> Tensors:
        """u = Δ / (ηK)."""
        scale = 1.0 / (self.settings.lr * self.settings.local_steps)
        return tree.map(lambda d: (scale * d).astype(d.dtype), change)

    def moved(self, state: Tensors, direction: Tensors) -> Tensors:
        """The state's θ, and its optimiser, after a step of size λ along `direction`."""
        optimizer = {
            name.removeprefix(OPTIMIZER): value
            for name, value in state.items()
            if name.startswith(OPTIMIZER)
        }
        theta, optimizer = server_optimizers.apply(
            self.settings.server_optimizer, optimizer, state["theta"], direction, self.server_lr
        )
        if isinstance(self.runner, ExactRunner):
            theta = self.runner.project(theta)
        return {"theta": theta, **_prefixed(optimizer)}

    def allow_trajectories(self, count: int) -> None:
        """A client may report the environment steps of this many trajectories in a round."""
        self.ranges["env/steps"] = Range(0, count * self.world.horizon, whole=True)

    def make_runner(self) -> Runner:
        return make_runner(self.world, self)

    # The federation's side: see `fedrl.core.types.Algorithm`.

    def warm_up(self) -> None:
        """Compile what clients will run, with one client's work thrown away."""
        state = self.init(0)
        for round in (0, 1) if self.initial_exchange else (1,):
            self.local(Job(0, self.broadcast(state, round), None, 0))

    def init(self, seed: int) -> Tensors:
        theta = self.runner.init(seed)
        state = {"theta": theta, **self.server_tensors(theta)}
        if self.settings.local_steps_spread:
            state["steps_seed"] = seeding.derive(seed, "local_steps")
        return {**state, **_prefixed(server_optimizers.init(self.settings.server_optimizer, theta))}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        drawn = {"steps_seed": state["steps_seed"]} if "steps_seed" in state else {}
        return {"round": round, "theta": state["theta"], **drawn, **self.sent(state, round)}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        """What `finish` sends, by its shapes: nothing else leaves a client."""
        import jax

        start = self.start_of([Job(0, broadcast, None, 0)])
        one = tree.map(lambda x: x[0], {"t": start.theta, "s": start.server, "c": start.client})
        said = jax.eval_shape(self.finish, one["t"], one["t"], one["s"], one["c"], np.int32(1))
        if not (isinstance(said, tuple) and len(said) == 2):
            raise UserError("finish must return two trees: what is sent, and what is kept")
        shapes, kept = said
        if missing := sorted({*one["c"]} - {*kept}):
            raise UserError(f"finish does not keep {', '.join(missing)}, which client_tensors has")
        return {name: Spec(leaf.shape, leaf.dtype.name) for name, leaf in tree.leaves(shapes)}

    def local(self, job: Job) -> Result:
        return self.local_many([job])[0]

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        """All clients of one broadcast in one call; `local` is the same call with one client."""
        sent, start = jobs[0].broadcast, self.start_of(jobs)
        params = stack([self.world.params(self.client_env_ids[job.client]) for job in jobs])
        seeds = np.array([job.seed for job in jobs], np.uint64)
        updates, kept, stats = self.work(sent, start, params, seeds)
        return [self._result(job, i, start, updates, kept, stats) for i, job in enumerate(jobs)]

    def start_of(self, jobs: Sequence[Job]) -> Start:
        """Where these clients of one broadcast start."""
        sent, count = jobs[0].broadcast, len(jobs)
        theta = sent["theta"]
        known = {k: v for k, v in sent.items() if k not in ("round", "theta", "steps_seed")}
        fresh = self.client_tensors(theta)
        kept = [fresh if job.state is None else {n: job.state[n] for n in fresh} for job in jobs]
        steps = self.steps_of(sent, [job.client for job in jobs])
        return Start(spread(theta, count), spread(known, count), stack(kept), steps)

    def steps_of(self, sent: Tensors, clients: Sequence[int]) -> np.ndarray | None:
        """K_i of these clients; None where all take K."""
        s = self.settings
        if s.client_steps:
            return np.array([s.client_steps[c % len(s.client_steps)] for c in clients], np.int32)
        if not s.local_steps_spread:
            return None
        seed = sent["steps_seed"]
        draws = [seeding.generator(seed, "K", client=c).uniform(-1, 1) for c in clients]
        steps = np.rint(s.local_steps * (1 + s.local_steps_spread * np.array(draws)))
        return np.maximum(1, steps).astype(np.int32)

    def poisoned(self, job: Job) -> Result:
        """A client's work if all its rewards had the other sign."""
        return self._reversed.local(job)

    @cached_property
    def _reversed(self) -> PolicyGradient:
        other = copy.copy(self)
        other.settings = replace(self.settings, return_scale=-self.settings.return_scale)
        other.runner = other.make_runner()
        return other

    def measured(self, round: int) -> tuple[str, ...]:
        """What a client's round says of itself."""
        return ("return", *self.measures)

    def _result(
        self, job: Job, i: int, start: Start, updates: Tensors, kept: Tensors, stats: Stats
    ) -> Result:
        metrics = {
            f"train/{name}": float(stats[name][i]) for name in self.measured(job.broadcast["round"])
        }
        metrics["env/steps"] = float(stats["steps"][i])
        state = tree.map(lambda leaf: np.asarray(leaf[i]), kept)
        if "returns" in stats:
            returns = stats["returns"][i]
            if start.steps is not None:  # later ones were played for nobody
                returns = returns[: start.steps[i] * self.settings.trajectories]
            before = np.zeros(0, np.float32) if job.state is None else job.state["returns"]
            recent = np.concatenate([before, returns])[-LAST:]
            metrics["train/return_last100"] = float(recent.mean())
            state["returns"] = recent.astype(np.float32)
        update = tree.map(lambda leaf: np.asarray(leaf[i]), updates)
        return Result(job.client, update, state=state or job.state, metrics=metrics)

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

    def policy(self, state: Tensors, client: int | None = None) -> TensorPolicy:
        """π_θ: one for all clients."""
        return of_parameters(state["theta"], *seen_and_played(self.world))

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


def stack(trees: Sequence[Tensors]) -> Tensors:
    """One tree with a new leading axis; an optimiser's count of steps is the same in all."""
    return tree.map(
        lambda *leaves: np.stack(leaves) if isinstance(leaves[0], np.ndarray) else leaves[0],
        *trees,
    )


def spread(params: Tensors, count: int) -> Tensors:
    """The same parameters for `count` pairs, without a copy."""
    return tree.map(lambda x: np.broadcast_to(x, (count, *np.shape(x))), params)


def _prefixed(optimizer: Tensors) -> Tensors:
    return {f"{OPTIMIZER}{name}": value for name, value in optimizer.items()}
