"""A federated Q-learner, written by its TD loss.

    server    broadcast θ_r, and what the method sends beside it
      client  θ ← θ_r; plays and updates: θ ← θ − lr ∇ loss(…)
              finish(…): what is sent, by default θ − θ_r, and what is kept until the next round
    server    θ_{r+1} = θ_r + server_lr · mean Δ: by default the mean of the clients' Q

θ is a network in discrete worlds, where clients play ε-greedy episodes and learn from a replay
(`networks`), and a table in worlds known as tables (`tables`). A method is a subclass, and says:

    target(now)                                       what Q(s, a) is moved to [B], traced by JAX
    loss(now)                                         or the whole loss: [B], or a scalar
    server_tensors(theta)                             what the server holds beside θ at first
    sent(state, round)                                what it broadcasts of that; all by default
    client_tensors(theta)                             what a client keeps before its first round
    finish(start, last, server, client, steps)        (what is sent, what is kept)
    step(state, mean, round)                          the server's step

The hooks have the names of `policy_gradient`'s. With none of them it is FedAvg-DQN, Huber and
double (`qhd.dqn.feddqn`): the same episodes, updates to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from fedrl.aggregation import server_optimizers
from fedrl.algorithms.q_learning.runners import End, Start, make_runner
from fedrl.algorithms.q_learning.settings import Settings
from fedrl.algorithms.q_learning.td_step import Params, TDStep, half_square, picked
from fedrl.algorithms.qhd.q_learning import round_report
from fedrl.core import tree
from fedrl.core.policies import TensorPolicy
from fedrl.core.types import Job, Metrics, Result, Spec, Tensors, UserError
from fedrl.envs.interfaces import DiscreteWorld, TabularWorld

if TYPE_CHECKING:
    from fedrl.algorithms.q_learning.td_step import Array

OPTIMIZER = "optimizer."
"""The server optimiser's tensors are named so in the state."""
Common = Settings


class QLearning:
    """Q-learning across clients, weights averaged. Client c plays in `client_env_ids[c]`."""

    Settings: TypeAlias = Common
    kinds: ClassVar[tuple[str, ...]] = ("discrete", "tabular")

    initial_exchange = False
    sign = 1.0  # of rewards; a poisoned client's are turned round

    def __init__(
        self,
        settings: Common,
        world: DiscreteWorld | TabularWorld,
        rounds: int,
        client_env_ids: Sequence[Sequence[int]],
    ) -> None:
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        self.tabular = isinstance(world, TabularWorld)
        self.runner = make_runner(world, self, max(map(len, client_env_ids)))
        self.reports, self.ranges = self.runner.reports, self.runner.ranges
        self.heaviest = self.runner.heaviest

    # What a method says.

    def target(self, now: TDStep) -> Array:
        """What Q(s, a) is moved to [B]: r + γ Q⁻(s', a*), a* by Q or, if not double, by Q⁻."""
        chooser = now.q_next if self.settings.double else now.q_delayed
        return now.bootstrap(picked(now.q_delayed, chooser.argmax(-1)))

    def loss(self, now: TDStep) -> Array:
        """What an update goes down: a number per transition [B], which counts by `now.weight`, or
        a scalar, which is taken as it is."""
        import jax

        error = now.taken - jax.lax.stop_gradient(self.target(now))
        return half_square(error, 0.0 if self.tabular else self.settings.huber)

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
        self, start: Params, last: Params, server: Tensors, client: Tensors, steps: Array | int
    ) -> tuple[Tensors, Tensors]:
        """What a client sends, and what it keeps, after `steps` updates from θ_r to θ."""
        return tree.map(lambda there, here: there - here, last, start), client

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        """θ_{r+1} = θ_r + server_lr · mean Δ, by the server's optimiser."""
        return {**state, **self.moved(state, {name: mean[name] for name in state["theta"]})}

    # What the hooks may use.

    def moved(self, state: Tensors, change: Tensors) -> Tensors:
        """The state's θ, and its optimiser, after a step along `change`."""
        s = self.settings
        known = {k.removeprefix(OPTIMIZER): v for k, v in state.items() if k.startswith(OPTIMIZER)}
        theta, optimizer = server_optimizers.apply(
            s.server_optimizer, known, state["theta"], change, s.server_lr
        )
        return {"theta": theta, **_prefixed(optimizer)}

    # The federation's side: see `fedrl.core.types.Algorithm`.

    def warm_up(self) -> None:
        self.runner.warm_up(self.start_of(Job(0, self.broadcast(self.init(0), 1), None, 0)))

    def init(self, seed: int) -> Tensors:
        theta = self.runner.init(seed)
        optimizer = server_optimizers.init(self.settings.server_optimizer, theta)
        return {"theta": theta, **self.server_tensors(theta), **_prefixed(optimizer)}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return {"round": round, "theta": state["theta"], **self.sent(state, round)}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        """What `finish` sends, by its shapes: nothing else leaves a client."""
        import jax

        start = self.start_of(Job(0, broadcast, None, 0))
        with self.runner.precision():
            shapes, _ = jax.eval_shape(
                self.finish, start.theta, start.theta, start.server, start.client, 1
            )
        return {name: Spec(leaf.shape, leaf.dtype.name) for name, leaf in tree.leaves(shapes)}

    def local(self, job: Job) -> Result:
        return self.local_many([job])[0]

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        """All clients of one broadcast in one call; `local` is the same call with one client."""
        starts = [self.start_of(job) for job in jobs]
        ends = self.runner.local(starts, self.sign)
        return [self._result(*each) for each in zip(jobs, starts, ends, strict=True)]

    def poisoned(self, job: Job) -> Result:
        """A client's work if all its rewards had the other sign."""
        other = copy.copy(self)
        other.sign = -1.0
        return other.local(job)

    def start_of(self, job: Job) -> Start:
        """Where a client starts."""
        sent, kept = job.broadcast, job.state or {}
        server = {name: value for name, value in sent.items() if name not in ("round", "theta")}
        fresh = self.client_tensors(sent["theta"])
        client = {name: kept.get(name, first) for name, first in fresh.items()}
        return Start(
            self.client_env_ids[job.client], sent["theta"], server, client, kept.get("learner"),
            job.seed,
        )  # fmt: skip

    def _result(self, job: Job, start: Start, end: End) -> Result:
        with self.runner.precision():
            sent, client = self.finish(
                start.theta, end.theta, start.server, start.client, end.steps
            )
        update, kept = (tree.map(np.asarray, tensors) for tensors in (sent, client))
        metrics, weight = dict(end.metrics), 1.0
        if end.episodes is not None:
            recent, played = round_report(job, *end.episodes, self.settings.recent)
            kept |= {"learner": end.learner, "returns": recent}
            metrics |= played
            weight = played["env/steps"]
        return Result(job.client, update, weight, kept or None, metrics)

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """Return of the greedy policy, averaged over all environments; over a state's own where
        these differ."""
        rows = np.stack(
            [self.runner.returns(s["theta"], seed, self.settings.eval_episodes) for s in states]
        )
        metrics = {"eval/return": float(rows.mean())}
        if not self.runner.alike:
            metrics["eval/return_min"] = float(rows.min(1).mean())
            if any(len(own) < self.world.clients for own in owners):
                own = [row[list(clients)].mean() for row, clients in zip(rows, owners)]
                metrics["eval/return_own"] = float(np.mean(own))
        exact = [self.runner.diagnostics(state["theta"]) for state in states]
        return metrics | {name: float(np.mean([e[name] for e in exact])) for name in exact[0]}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Mean return of one state's greedy policy in every client's environment [N]."""
        return self.runner.returns(state["theta"], seed, episodes)

    def policy(self, state: Tensors, client: int | None = None) -> TensorPolicy:
        """Greedy by Q: one for all clients."""
        return self.runner.policy(state["theta"])

    def own_policy(self, kept: Tensors, state: Tensors, client: int) -> TensorPolicy:
        """Greedy by the Q that the client had when its last round ended."""
        if "learner" not in kept:
            raise UserError("clients of tables keep no Q of their own: they take the server's")
        return self.runner.policy({"weights": kept["learner"]["online"]})


def _prefixed(optimizer: Tensors) -> Tensors:
    return {f"{OPTIMIZER}{name}": value for name, value in optimizer.items()}
