"""FedAvg-DQN: deep Q-learning across clients, weights averaged. A baseline of the FedQHD paper.

    server    weights ← mean of the clients' weights; they count the same, or with
              `aggregate.name = "weighted"` by the round's steps
    client    weights ← the server's; `episodes` ε-greedy episodes with updates from its replay;
              sends its weights

The network has two hidden layers (`network`). The replay, ε, the delayed weights, Adam's means and
the random numbers stay with the client. Independent and Oracle are the same learner in another
federation: a client that gets back what it sent goes on undisturbed, and a centralized client plays
the episodes of all the clients it stands for.

The paper fixes the layers (128 each), γ, the replay and when clients average. It is silent on the
optimizer, the batch, the target rule and its period: here Adam, 32, double, 500 steps. A network
needs hundreds of updates to fit a target: of one that moves every 45 (five short episodes), it
learns values without bound, and so does PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.episodes import evaluate as play_greedily
from fedrl.algorithms.qhd.dqn.episodes import run_episodes
from fedrl.algorithms.qhd.dqn.policy import network_policy
from fedrl.algorithms.qhd.q_learning import (
    FederatedQLearner,
    Practice,
    remembers_a_batch,
    round_report,
)
from fedrl.core import seeding
from fedrl.core.limits import above_zero, at_least_one
from fedrl.core.policies import NetworkPolicy
from fedrl.core.types import Job, Metrics, Result, Spec, Tensors, UserError
from fedrl.envs.interfaces import DiscreteWorld


@dataclass(frozen=True)
class Network(Practice):
    """What clients learn with."""

    # Units of the two hidden layers.
    hidden: tuple[int, ...] = (128, 128)
    # Step size of Adam.
    lr: float = 0.0003
    # Transitions per update; the loss is their mean.
    batch: int = 32
    # TD errors beyond this count linearly, not squared (Huber); 0 squares all.
    huber: float = 1.0
    # Steps between two copies of what is learned to the delayed target; 0 is never by steps.
    sync_steps: int = 500
    # Episodes between two copies; 0 is never by episodes.
    sync_episodes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "algorithm.", "batch")
        remembers_a_batch(self.replay, self.batch)
        if len(self.hidden) != 2 or min(self.hidden) < 1:
            raise UserError(
                f"algorithm.hidden is {list(self.hidden)}; name the units of two layers, above 0"
            )
        above_zero(self, "algorithm.", "lr")


@dataclass(frozen=True)
class Settings(Network):
    """A network for all, and how clients learn."""

    name: Literal["feddqn"] = "feddqn"


class DeepQLearner(FederatedQLearner):
    """A client's round but for what it receives and sends."""

    settings: Network

    def shape_of(self, hidden: Sequence[int]) -> dqn.Shape:
        first, second = hidden
        return self.world.dimension, first, second, self.world.actions

    def restore(self, job: Job, shape: dqn.Shape, weights: np.ndarray) -> dqn.Learner:
        """The learner as it was left, or a fresh one with these weights."""
        if job.state is None:
            s = self.settings
            return dqn.fresh(shape, weights, s.replay, job.seed % 2**63, s.epsilon)
        return dqn.Learner(**{name: np.array(job.state[name]) for name in dqn.Learner._fields})

    def play(self, job: Job, shape: dqn.Shape, learner: dqn.Learner) -> tuple[Tensors, Metrics]:
        """The round's episodes; returns what the client keeps and what it reports."""
        s, own = self.settings, self.client_env_ids[job.client]
        count, world = s.episodes * len(own), self.world.of_clients(own)
        rules = s.rules(s.lr, s.batch, world.limit, self.sign)
        returns, lengths = run_episodes(world, count, shape, learner, rules, job.seed)
        recent, metrics = round_report(job, returns, lengths, s.recent)
        return {**learner._asdict(), "returns": recent}, metrics

    def greedy(
        self,
        shape: dqn.Shape,
        weights: np.ndarray,
        seed: int,
        places: Sequence[int],
        episodes: int = 0,
    ) -> float:
        """Mean return without exploration in the environments of the clients `places`."""
        count, world = episodes or self.settings.eval_episodes, self.world.of_clients(places)
        return float(play_greedily(world, count, shape, weights, seed).mean())


class FedDQN(DeepQLearner):
    """See the module's docstring."""

    settings: Settings

    @property
    def shape(self) -> dqn.Shape:
        return self.shape_of(self.settings.hidden)

    # The server

    def init(self, seed: int) -> Tensors:
        return {"weights": dqn.draw_weights(self.shape, seeding.derive(seed, "network"))}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"weights": Spec(broadcast["weights"].shape, "float32")}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return {"weights": mean["weights"].astype(np.float32)}

    # A client

    def local(self, job: Job) -> Result:
        got = job.broadcast["weights"]
        learner = self.restore(job, self.shape, got)
        # What comes back unchanged is no news: a client alone is not disturbed in its syncs.
        if not np.array_equal(got, learner.online):
            learner.online[:] = got
            if self.settings.sync_on_receipt:
                learner.target[:] = got
        kept, metrics = self.play(job, self.shape, learner)
        weight = metrics["env/steps"]
        return Result(job.client, {"weights": learner.online.copy()}, weight, kept, metrics)

    def policy(self, state: Tensors, client: int | None = None) -> NetworkPolicy:
        """One for all clients."""
        return network_policy(state["weights"], self.shape, self.world.scaling)

    def own_policy(self, kept: Tensors, state: Tensors, client: int) -> NetworkPolicy:
        """What the client had learned when its last round ended."""
        return network_policy(kept["online"], self.shape, self.world.scaling)

    # Evaluation

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """Greedy episodes with the weights that all clients of a state hold."""
        everywhere = self.world.own
        returns = [self.greedy(self.shape, state["weights"], seed, everywhere) for state in states]
        return {"eval/return": float(np.mean(returns))}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        alike = self.world.of_clients([0]) is self.world  # one mean stands for all then
        means = [
            self.greedy(self.shape, state["weights"], seed, [client], episodes)
            for client in range(1 if alike else self.world.clients)
        ]
        return np.resize(means, self.world.clients)


def build(
    settings: Settings, world: DiscreteWorld, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedDQN:
    return FedDQN(settings, world, client_env_ids)
