"""What the Q-learners of a federation share, whatever stands for Q: a client's round and its rules.

FedQHD, FedAvg-DQN and Distillation FedDQN differ in how values are represented and agreed upon. How
a client explores, remembers, delays its targets and tells of its episodes is the same for all, so
that a comparison compares nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from fedrl.envs.discrete import HOST, World
from fedrl.types import Job, Metrics, Result, UserError

LAST = 100
"""Episodes behind `train/return_last100`, the paper's figure of merit."""

REPORTS = frozenset(
    {"train/return", "train/return_last100", "train/steps", "env/steps", "env/episodes"}
)

_ONLY = np.zeros(1, np.int64)
"""The rows of a call with one lander."""


@dataclass(frozen=True)
class Practice:
    """How a client explores, remembers and delays its targets."""

    # Local episodes between two exchanges.
    episodes: int = 50
    # Discount γ.
    gamma: float = 0.99
    # Updates per environment step.
    updates_per_step: int = 1
    # Steps between two copies of what is learned to the delayed target; 0 is never by steps.
    sync_steps: int = 0
    # Episodes between two copies; 0 is never by episodes.
    sync_episodes: int = 5
    # Also copy when something new arrives from the server.
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
        for key in ("episodes", "replay", "eval_episodes"):
            if getattr(self, key) < 1:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it must be at least 1")
        for key in ("updates_per_step", "sync_steps", "sync_episodes"):
            if getattr(self, key) < 0:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it must not be negative")
        for key in ("gamma", "epsilon", "epsilon_decay", "epsilon_floor"):
            if not 0 <= getattr(self, key) <= 1:
                raise UserError(f"algorithm.{key} is {getattr(self, key)}; it is a share, 0 to 1")


def told(job: Job, returns: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, Metrics]:
    """The last returns, which the client keeps, and what it reports of a round's episodes."""
    before = returns[:0] if job.state is None else job.state["returns"]
    recent = np.concatenate([before, returns])[-LAST:]
    return recent, {
        "train/return": float(returns.mean()),
        "train/return_last100": float(recent.mean()),
        "train/steps": float(lengths.mean()),
        "env/steps": float(lengths.sum()),
        "env/episodes": float(len(returns)),
    }


def side_by_side(world: World, local: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    """A thread per client: the kernels release Python's lock. A host's world does not."""
    if len(jobs) == 1 or world.kind == HOST:
        return [local(job) for job in jobs]
    with ThreadPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        return list(pool.map(local, jobs))


def host_episodes(
    world: World,
    count: int,
    seed: int,
    choose: Callable[[np.ndarray], int],
    learn: Callable[[np.ndarray, int, float, np.ndarray, bool], None],
    finish: Callable[[], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths [count] where the world is not compiled (LunarLander), step by step.

    `choose` gets the scaled state [1, d]; `learn` gets (s, a, r, s', terminal) after every step,
    `finish` follows an episode. `seed` begins the simulator's own stream, which cannot be kept from
    one call to the next.
    """
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    seen, ahead = (np.empty((1, world.dimension), np.float32) for _ in range(2))
    lander = world.landers(1)
    observation = lander.reset([seed])[0]
    for episode in range(count):
        if episode:
            observation = lander.restart(_ONLY)[0]
        seen[0] = world.scaling(observation)
        over = False
        while not over:
            action = choose(seen)
            after = lander.step(np.array([action]))
            over = bool(after.terminated[0] or after.truncated[0])
            ahead[0] = world.scaling(after.observations[0])
            reward, ended = float(after.rewards[0]), bool(after.terminated[0])
            learn(seen[0], action, reward, ahead[0], ended)
            seen[:] = ahead
            returns[episode] += reward
            lengths[episode] += 1
        finish()
    return returns, lengths
