"""The compiled worlds as a `Simulator`: a batch of episodes, one compiled call per step.

An episode that begins from a seed is Gymnasium's of that seed (`reset(seed=…)`): CartPole and
MountainCar to the last bit, Acrobot until the last bits of a square part (`classic_kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrl.envs.discrete import classic_kernels as classic
from fedrl.envs.interfaces import Step
from fedrl.envs.simulated import ONE, EpisodeSeeds


class Compiled:
    """Episodes of the world `kernel`; all clients have the same."""

    def __init__(self, kernel: int, pools: Sequence[Sequence[int]] | np.ndarray) -> None:
        self.count = len(pools)
        self._kernel = kernel
        self._seeds = EpisodeSeeds(pools)
        self._all = np.arange(self.count)
        self._states = np.empty((self.count, classic.STATE[kernel]))
        self._steps = np.zeros(self.count, np.int64)
        self._over = np.ones(self.count, bool)

    def reset(self, seeds: Sequence[int] | np.ndarray) -> np.ndarray:
        self._seeds.reset(seeds)
        return self.restart(self._all)

    def restart(self, rows: np.ndarray) -> np.ndarray:
        first = np.empty((len(rows), classic.OBSERVATION[self._kernel]), np.float32)
        for i, row in enumerate(rows.tolist()):
            _, seed = self._seeds.next(row)
            uniforms = np.random.default_rng(seed).random(classic.DRAWS[self._kernel])
            classic.reset(self._kernel, self._states[row], uniforms)
            classic.observe(self._kernel, self._states[row], first[i])
        self._steps[rows], self._over[rows] = 0, False
        return first

    def step(self, actions: np.ndarray, rows: np.ndarray | None = None) -> Step:
        rows = self._all if rows is None else rows
        if self._over[rows].any():
            raise ValueError("an episode that is over must be restarted first")
        observations = np.empty((len(rows), classic.OBSERVATION[self._kernel]), np.float32)
        rewards, terminated = np.empty(len(rows)), np.empty(len(rows), bool)
        chosen = np.asarray(actions, np.int64)
        classic.step_rows(
            self._kernel, self._states, rows, chosen, observations, rewards, terminated
        )
        self._steps[rows] += 1
        truncated = self._steps[rows] >= classic.LIMIT[self._kernel]
        self._over[rows] = terminated | truncated
        return Step(observations, rewards, terminated, truncated)

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        if self.count != 1:
            raise ValueError("one environment is needed")
        after = self.step(np.array([action]), ONE)
        flags = bool(after.terminated[0]), bool(after.truncated[0])
        return after.observations[0], float(after.rewards[0]), *flags
