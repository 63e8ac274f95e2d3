"""Distillation FedDQN: clients with networks of their own agree on soft predictions.

A baseline of the FedQHD paper, after FedHPD (Jiang et al., 2025):

    server    teacher ← mean of the clients' predictions on m common anchor states, equally or, with
              `aggregate.name = "weighted"`, by the round's steps
    client    fits the teacher by `distill_steps` steps of Adam on
              KL(teacher ‖ softmax(Q / temperature)); plays `episodes` as in `feddqn`;
              sends softmax(Q(anchors) / temperature): m × |A| numbers, whatever its network

The paper says "averaged soft predictions", so distributions over actions are averaged, not values.
They say which action is better, not what a state is worth: that a client learns from its replay
alone. The steps of a distillation start from moments of zero, and TD's own are not touched.

A network cannot be had from the server's state, so `eval/return` is that of newcomers: networks as
the clients' were at their beginning, with nothing but the teacher fitted. How the clients' own
networks do is in `train/greedy`, without exploration, and in the returns of their training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrl.algorithms.qhd import anchors as anchoring
from fedrl.algorithms.qhd.dqn import feddqn
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.policy import network_policy
from fedrl.algorithms.qhd.q_learning import REPORTS
from fedrl.core import seeding
from fedrl.core.limits import above_zero, not_negative
from fedrl.core.policies import NetworkPolicy
from fedrl.core.types import FilePath, Job, Metrics, Result, Spec, Tensors, UserError
from fedrl.envs.interfaces import DiscreteWorld


@dataclass(frozen=True)
class Settings(feddqn.Network):
    """What clients learn with, and how they agree."""

    name: Literal["distill-dqn"] = "distill-dqn"
    # Units of both layers instead, given to the clients in turn; [] is `hidden` for all.
    sizes: tuple[int, ...] = ()
    # m: states on which clients agree.
    anchors: int = anchoring.DEFAULT
    # Where they come from: random play, uniform draws of plausible states, or `anchor_file`.
    anchor_source: anchoring.Source = "rollouts"
    # A .npy or .csv file of states as the world shows them, one per row; its rows are m.
    anchor_file: FilePath = ""
    # Steps of Adam towards the teacher per exchange.
    distill_steps: int = 100
    # Their step size.
    distill_lr: float = 0.001
    # Q-values are divided by this before the softmax; less is closer to the greedy action.
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        anchoring.check(self.anchors, self.anchor_source, self.anchor_file)
        if min(self.sizes, default=1) < 1:
            raise UserError(f"algorithm.sizes is {list(self.sizes)}; every one must be above 0")
        not_negative(self, "algorithm.", "distill_steps")
        above_zero(self, "algorithm.", "distill_lr", "temperature")


class Distillation(feddqn.DeepQLearner):
    """See the module's docstring."""

    settings: Settings
    reports = REPORTS | {"train/greedy"}

    def shape(self, client: int) -> dqn.Shape:
        sizes = self.settings.sizes
        return self.shape_of((sizes[client % len(sizes)],) * 2 if sizes else self.settings.hidden)

    # The server

    def init(self, seed: int) -> Tensors:
        s = self.settings
        anchors = anchoring.draw(self.world, s.anchors, s.anchor_source, s.anchor_file, seed)
        return {
            "seed": np.array([seed % 2**62], np.int64),
            "anchors": anchors,
            # Zeros are no distribution: nobody has predicted anything yet.
            "teacher": np.zeros((len(anchors), self.world.actions), np.float32),
        }

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        """Predictions on the anchors; never anything of a trajectory."""
        return {"teacher": Spec(broadcast["teacher"].shape, "float32")}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return state | {"teacher": mean["teacher"].astype(np.float32)}

    # A client

    def local(self, job: Job) -> Result:
        shape, sent = self.shape(job.client), job.broadcast
        learner = self.restore(job, shape, self.initial_weights(job.client, sent))
        # A client that gets back exactly what it predicted has nothing to learn from it.
        own = job.state is not None and np.array_equal(sent["teacher"], job.state["sent"])
        if sent["teacher"].any() and not own:
            self.fit(learner.online, shape, sent)
            if self.settings.sync_on_receipt:
                learner.target[:] = learner.online
        kept, metrics = self.play(job, shape, learner)
        seed = seeding.derive(job.seed, "greedy")  # other starts than the training's
        metrics["train/greedy"] = self.greedy(
            shape, learner.online, seed, self.client_env_ids[job.client]
        )
        predicted = self.predictions(learner.online, shape, sent)
        weight = metrics["env/steps"]
        return Result(
            job.client, {"teacher": predicted}, weight, kept | {"sent": predicted}, metrics
        )

    def initial_weights(self, client: int, sent: Tensors) -> np.ndarray:
        """A client's first weights: its own, as its layers are."""
        seed = seeding.derive(int(sent["seed"][0]), "network", client=client)
        return dqn.draw_weights(self.shape(client), seed)

    def fit(self, weights: np.ndarray, shape: dqn.Shape, sent: Tensors) -> None:
        """Move the weights towards the teacher, in place."""
        s = self.settings
        teacher = np.ascontiguousarray(sent["teacher"], np.float32)
        dqn.distill(
            weights, shape, self._states(sent), teacher, s.distill_steps, s.distill_lr,
            s.temperature,
        )  # fmt: skip

    def predictions(self, weights: np.ndarray, shape: dqn.Shape, sent: Tensors) -> np.ndarray:
        """softmax(Q / temperature) on the anchors [m, |A|]."""
        x = self._states(sent)
        h1, h2 = (np.empty((len(x), units), np.float32) for units in shape[1:3])
        q = np.empty((len(x), shape[3]), np.float32)
        dqn.values(weights, shape, x, h1, h2, q)
        predicted = np.empty_like(q)
        dqn.soften(q, self.settings.temperature, predicted)
        return predicted

    def _states(self, sent: Tensors) -> np.ndarray:
        return self.world.scaling(sent["anchors"]).astype(np.float32)

    def policy(self, state: Tensors, client: int | None = None) -> NetworkPolicy:
        """A newcomer's, with nothing but the teacher fitted; see `own_policy`."""
        if client is None:
            raise UserError("every client has a network of its own: say whose policy (--client 0)")
        return network_policy(self._fitted(client, state), self.shape(client), self.world.scaling)

    def own_policy(self, kept: Tensors, state: Tensors, client: int) -> NetworkPolicy:
        """What the client had learned when its last round ended."""
        return network_policy(kept["online"], self.shape(client), self.world.scaling)

    # Evaluation

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """Greedy episodes of a newcomer in each client's place."""
        returns = [
            self._newcomer(client, state, seed)
            for state, clients in zip(states, owners, strict=True)
            for client in clients
        ]
        return {"eval/return": float(np.mean(returns))}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        clients = range(self.world.clients)
        return np.array([self._newcomer(client, state, seed, episodes) for client in clients])

    def _newcomer(self, client: int, state: Tensors, seed: int, episodes: int = 0) -> float:
        weights = self._fitted(client, state)
        return self.greedy(self.shape(client), weights, seed, [client], episodes)

    def _fitted(self, client: int, state: Tensors) -> np.ndarray:
        """A newcomer's weights in the place of this client."""
        weights = self.initial_weights(client, state)
        if state["teacher"].any():
            self.fit(weights, self.shape(client), state)
        return weights


def build(
    settings: Settings, world: DiscreteWorld, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> Distillation:
    return Distillation(settings, world, client_env_ids)
