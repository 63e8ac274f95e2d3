"""FedAvg-DQN: deep Q-learning across clients, weights averaged. A baseline of the FedQHD paper.

    server    weights ← mean of the clients' weights
    client    weights ← the server's; `episodes` ε-greedy episodes with updates from its replay;
              sends its weights

The network has two hidden layers (`dqn`). The replay, ε, the delayed weights, Adam's means and the
random numbers stay with the client. Independent and Oracle are the same learner in another
federation: a client that gets back what it sent goes on undisturbed, and a centralized client plays
the episodes of all the clients it stands for.

The paper fixes the layers (128 each), γ, the replay and when clients average. It is silent on the
optimizer, the batch, the target rule and its period: here Adam, 32, double, five episodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrl import seeding
from fedrl.algorithms import dqn
from fedrl.algorithms.dqn_episodes import evaluate as play
from fedrl.algorithms.dqn_episodes import run_episodes
from fedrl.envs.discrete import HOST, World
from fedrl.types import Job, Metrics, Result, Spec, Tensors, UserError

LAST = 100
"""Episodes behind `train/return_last100`, the paper's figure of merit."""

REPORTS = frozenset(
    {"train/return", "train/return_last100", "train/steps", "env/steps", "env/episodes"}
)


@dataclass(frozen=True)
class Settings:
    """What clients learn with."""

    name: Literal["feddqn"] = "feddqn"
    # Units of the two hidden layers.
    hidden: tuple[int, ...] = (128, 128)
    # Local episodes between two exchanges.
    episodes: int = 50
    # Step size of Adam.
    lr: float = 0.0003
    # Discount γ.
    gamma: float = 0.99
    # Transitions per update; the loss is their mean.
    batch: int = 32
    # Updates per environment step.
    updates_per_step: int = 1
    # Target r + γ Q⁻(s', a*): a* chosen by the online weights, else by the delayed ones too.
    double: bool = True
    # TD errors beyond this count linearly, not squared (Huber); 0 squares all.
    huber: float = 1.0
    # Steps between two copies of the weights to the delayed ones; 0 is never by steps.
    sync_steps: int = 0
    # Episodes between two copies; 0 is never by episodes.
    sync_episodes: int = 5
    # Also copy when new weights arrive from the server.
    sync_on_receipt: bool = True
    # ε of the first episode.
    epsilon: float = 1.0
    # ε is multiplied by this after every episode,
    epsilon_decay: float = 0.985
    # down to this.
    epsilon_floor: float = 0.001
    # Transitions that a client remembers.
    replay: int = 10_000
    # Greedy episodes per evaluation and client.
    eval_episodes: int = 20

    def __post_init__(self) -> None:
        for key in ("episodes", "batch", "replay", "eval_episodes"):
            if getattr(self, key) < 1:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it must be at least 1")
        if len(self.hidden) != 2 or min(self.hidden) < 1:
            raise UserError(
                f"algorithm.hidden is {list(self.hidden)}; name the units of two layers, above 0"
            )
        if not self.lr > 0:
            raise UserError(f"algorithm.lr is {self.lr}; it must be above 0")
        for key in ("updates_per_step", "sync_steps", "sync_episodes", "huber"):
            if getattr(self, key) < 0:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it must not be negative")
        for key in ("gamma", "epsilon", "epsilon_decay", "epsilon_floor"):
            if not 0 <= getattr(self, key) <= 1:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it is a share, 0 to 1")


@dataclass(frozen=True)
class Training:
    """A client's round but for what it receives and sends; `pools[c]` are those c plays for."""

    settings: Settings
    world: World
    pools: Sequence[Sequence[int]]

    def shape(self, hidden: Sequence[int]) -> dqn.Shape:
        first, second = hidden
        return self.world.dimension, first, second, self.world.actions

    @property
    def rules(self) -> dqn.Rules:
        s = self.settings
        return dqn.Rules(
            s.gamma, s.lr, s.batch, s.updates_per_step, s.sync_steps, s.sync_episodes,
            s.epsilon_decay, s.epsilon_floor, s.double, s.huber, self.world.limit,
        )  # fmt: skip

    def restore(self, job: Job, shape: dqn.Shape, weights: np.ndarray) -> dqn.Learner:
        """The learner as it was left, or a fresh one with these weights."""
        if job.state is None:
            s = self.settings
            return dqn.fresh(shape, weights, s.replay, job.seed % 2**63, s.epsilon)
        return dqn.Learner(**{name: np.array(job.state[name]) for name in dqn.Learner._fields})

    def play(self, job: Job, shape: dqn.Shape, learner: dqn.Learner) -> tuple[Tensors, Metrics]:
        """The round's episodes; returns what the client keeps and what it reports."""
        count = self.settings.episodes * len(self.pools[job.client])
        returns, lengths = run_episodes(self.world, count, shape, learner, self.rules, job.seed)
        before = returns[:0] if job.state is None else job.state["returns"]
        recent = np.concatenate([before, returns])[-LAST:]
        metrics = {
            "train/return": float(returns.mean()),
            "train/return_last100": float(recent.mean()),
            "train/steps": float(lengths.mean()),
            "env/steps": float(lengths.sum()),
            "env/episodes": float(count),
        }
        return {**learner._asdict(), "returns": recent}, metrics

    def side_by_side(self, local: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """A thread per client: the kernels release Python's lock."""
        if len(jobs) == 1 or self.world.kind == HOST:
            return [local(job) for job in jobs]
        with ThreadPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
            return list(pool.map(local, jobs))

    def greedy(self, shape: dqn.Shape, weights: np.ndarray, seed: int, episodes: int = 0) -> float:
        count = episodes or self.settings.eval_episodes
        return float(play(self.world, count, shape, weights, seed).mean())


class FedDQN:
    """See the module's docstring."""

    opening = False
    reports = REPORTS

    def __init__(self, settings: Settings, world: World, pools: Sequence[Sequence[int]]) -> None:
        self.settings, self.world = settings, world
        self.training = Training(settings, world, pools)
        self.shape = self.training.shape(settings.hidden)

    # The server

    def init(self, seed: int) -> Tensors:
        return {"weights": dqn.draw_weights(self.shape, seeding.derive(seed, "network"))}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return dict(state)

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"weights": Spec(broadcast["weights"].shape, "float32")}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return {"weights": mean["weights"].astype(np.float32)}

    # A client

    def local(self, job: Job) -> Result:
        got = job.broadcast["weights"]
        learner = self.training.restore(job, self.shape, got)
        # What comes back unchanged is no news: a client alone is not disturbed in its syncs.
        if not np.array_equal(got, learner.online):
            learner.online[:] = got
            if self.settings.sync_on_receipt:
                learner.target[:] = got
        kept, metrics = self.training.play(job, self.shape, learner)
        return Result(job.client, {"weights": learner.online.copy()}, state=kept, metrics=metrics)

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        return self.training.side_by_side(self.local, jobs)

    # Evaluation

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """Greedy episodes with the weights that all clients of a state hold."""
        found = [self.training.greedy(self.shape, state["weights"], seed) for state in states]
        return {"eval/return": float(np.mean(found))}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        found = self.training.greedy(self.shape, state["weights"], seed, episodes)
        return np.full(self.world.clients, found)


def build(settings: Settings, world: World, rounds: int, pools: Sequence[Sequence[int]]) -> FedDQN:
    return FedDQN(settings, world, pools)
