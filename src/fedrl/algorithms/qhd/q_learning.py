"""What the Q-learners of a federation share, whatever stands for Q: a client's round and its rules.

FedQHD, FedAvg-DQN and Distillation FedDQN differ in how values are represented and agreed upon. How
a client explores, remembers, when it updates, how it delays its targets and tells of its episodes
is the same for all, by settings of the same names, so that a comparison compares nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrl.algorithms.qhd.q_learning_kernels import Rules
from fedrl.core.limits import at_least_one, not_negative
from fedrl.core.threads import kernel_threads
from fedrl.core.types import Job, Metrics, Range, Result, Tensors, UserError
from fedrl.envs.interfaces import DiscreteWorld
from fedrl.envs.simulated import ONE as ONLY

LAST = 100
"""Episodes behind `train/return_last100`, the paper's figure of merit."""

REPORTS = frozenset(
    {"train/return", "train/return_last100", "train/return_recent", "train/steps", "env/steps",
     "env/episodes"}
)  # fmt: skip

Bundle = tuple[Any, ...]
"""A NamedTuple of arrays as a plain tuple, which numba unpacks in half the time: it counts where
every step of a world is a call."""


@dataclass(frozen=True)
class Practice:
    """How a client explores, remembers, updates and delays its targets."""

    # Local episodes between two exchanges.
    episodes: int = 50
    # Discount γ.
    gamma: float = 0.99
    # Steps of the world between two trainings,
    train_every: int = 1
    # each of so many updates.
    gradient_steps: int = 1
    # Steps of random play before the first update; also without any, a whole batch is awaited.
    learning_starts: int = 0
    # Steps between two copies of what is learned to the delayed target; 0 is never by steps.
    sync_steps: int = 0
    # Episodes between two copies; 0 is never by episodes.
    sync_episodes: int = 5
    # Also copy when something new arrives from the server.
    sync_on_receipt: bool = True
    # ε at the beginning.
    epsilon: float = 1.0
    # ε is multiplied by this after every episode,
    epsilon_decay: float = 0.985
    # down to this.
    epsilon_floor: float = 0.001
    # Instead, ε falls in a straight line to its floor over so many of the client's steps; 0 is off.
    epsilon_steps: int = 0
    # Target r + γ Q⁻(s', a*): a* chosen by the online weights, else by the delayed ones too.
    double: bool = True
    # TD errors beyond this count linearly, not squared (Huber); 0 squares all.
    huber: float = 0.0
    # An update's gradient is shortened to this norm before it is applied; 0 is off.
    max_grad_norm: float = 0.0
    # Transitions that a client remembers.
    replay: int = 10_000
    # Greedy episodes per evaluation and client.
    eval_episodes: int = 20
    # Also report the mean return of the last so many of a round's episodes; 0 does not.
    recent: int = 0

    def __post_init__(self) -> None:
        at_least_one(self, "algorithm.", "episodes", "replay", "eval_episodes", "train_every")
        not_negative(self, "algorithm.", "gradient_steps", "learning_starts", "sync_steps")
        not_negative(self, "algorithm.", "sync_episodes", "epsilon_steps", "huber", "max_grad_norm")
        not_negative(self, "algorithm.", "recent")
        for key in ("gamma", "epsilon", "epsilon_decay", "epsilon_floor"):
            if not 0 <= getattr(self, key) <= 1:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it is a share, 0 to 1")
        if self.epsilon < self.epsilon_floor:
            raise UserError(
                f"algorithm.epsilon is {self.epsilon}, below algorithm.epsilon_floor = "
                f"{self.epsilon_floor}; ε falls from the one to the other"
            )

    def rules(self, lr: float, batch: int, limit: int, sign: float = 1.0) -> Rules:
        """The same for the kernels, with what is a learner's own."""
        return Rules(
            self.gamma, lr, batch, self.gradient_steps, self.sync_steps, self.sync_episodes,
            self.epsilon_decay, self.epsilon_floor, limit, sign, self.train_every,
            self.learning_starts, self.epsilon, self.epsilon_steps, self.double, self.huber,
            self.max_grad_norm,
        )  # fmt: skip


def remembers_a_batch(replay: int, batch: int) -> None:
    """Nothing is learned before a whole batch is remembered."""
    if replay < batch:
        raise UserError(
            f"algorithm.replay is {replay}, fewer than algorithm.batch = {batch}: nothing would "
            "ever be learned"
        )


def round_report(
    job: Job, returns: np.ndarray, lengths: np.ndarray, last: int = 0
) -> tuple[np.ndarray, Metrics]:
    """The last returns, which the client keeps, and what it reports of a round's episodes."""
    before = returns[:0] if job.state is None else job.state["returns"]
    recent = np.concatenate([before, returns])[-LAST:]
    asked = {"train/return_recent": float(returns[-last:].mean())} if last else {}
    return recent, asked | {
        "train/return": float(returns.mean()),
        "train/return_last100": float(recent.mean()),
        "train/steps": float(lengths.mean()),
        "env/steps": float(lengths.sum()),
        "env/episodes": float(len(returns)),
    }


class FederatedQLearner:
    """What the three methods are alike in; client c plays the episodes of `client_env_ids[c]`."""

    initial_exchange = False
    sends_parameters = True
    reports = REPORTS
    sign = 1.0  # of rewards; a poisoned client's are turned round

    def __init__(
        self, settings: Practice, world: DiscreteWorld, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        if not world.actions:
            raise UserError(
                f"{world.name} has continuous actions, which Q-learning cannot choose from: "
                'set algorithm.name = "pavg" or another policy gradient'
            )
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        episodes = settings.episodes * max(map(len, client_env_ids))
        self.ranges = {
            "train/steps": Range(0, world.limit),
            "env/steps": Range(0, episodes * world.limit, whole=True),
            "env/episodes": Range(0, episodes, whole=True),
        }
        # A client weighs what it has played: at most every episode to its limit.
        self.heaviest = float(episodes * world.limit)

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return dict(state)

    def local(self, job: Job) -> Result:
        raise NotImplementedError

    def poisoned(self, job: Job) -> Result:
        """A client's work if all its rewards had the other sign."""
        other = copy.copy(self)
        other.sign = -1.0
        return other.local(job)

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        """A thread per client: the kernels release Python's lock. A host's world does not."""
        threads = 1 if self.world.kernel is None else min(len(jobs), kernel_threads())
        if threads == 1:
            return [self.local(job) for job in jobs]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self.local, jobs))


def step_by_step(
    world: DiscreteWorld,
    count: int,
    seed: int,
    held: Bundle,
    first_action: Callable[..., int],
    next_action: Callable[..., int],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths [count] where the world is not compiled, step by step.

    `first_action(held, observation)` begins an episode. `next_action(held, action, observation,
    reward, terminal, over)` learns from the step before it answers; after an episode's last step
    its answer is not used. `seed` begins the simulator's own stream, which cannot be kept from one
    call to the next.
    """
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    simulator = world.simulator([world.own])
    observation = simulator.reset([seed])[0]
    for episode in range(count):
        if episode:
            observation = simulator.restart(ONLY)[0]
        total, steps, over = 0.0, 0, False
        action = first_action(held, observation)
        while not over:
            observation, reward, terminated, truncated = simulator.step_alone(action)
            over = terminated or truncated
            action = next_action(held, action, observation, reward, terminated, over)
            total, steps = total + reward, steps + 1
        returns[episode], lengths[episode] = total, steps
    return returns, lengths
