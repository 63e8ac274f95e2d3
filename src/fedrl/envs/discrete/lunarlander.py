"""LunarLander-v3, one lander or several stepped together, simulated by Gymnasium or by envpool.

A learner needs the observation that an episode ended with and the first one of the next episode.
Vector environments restart by themselves and lose the one or the other, so here nothing restarts by
itself: `step` gives the true outcome, `restart` the next episode. The step limit is counted here as
well: envpool reports an episode that both ends and reaches the limit as cut.

The two simulators play the same world from different random numbers. Neither's choice of terrain
and initial push can be had from the other, so a run's numbers belong to the one it was played with.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from fedrl.core.types import UserError
from fedrl.envs.interfaces import Step

DIMENSION, ACTIONS, LIMIT = 8, 4, 1000

_FIRST = np.zeros(1, np.int64)
"""The rows of a call with one lander."""

Backend = Literal["auto", "envpool", "gymnasium"]

NEEDS = {"gymnasium": ("gymnasium", "Box2D"), "envpool": ("envpool", "gymnasium")}
"""Modules of each simulator; the one that steps a lander alone faster, as a client does, first."""

INSTALL = {"gymnasium": 'pip install "fedrl[box2d]"',
           "envpool": 'pip install envpool "gymnasium>=1.1"'}  # fmt: skip


class Lunar:
    """`count` landers; each one's episodes come from its own seed, whatever the others do."""

    def __init__(self, count: int, simulator: Backend = "auto") -> None:
        self.count = count
        self.simulator = choose_simulator(simulator)
        make = _Envpool if self.simulator == "envpool" else _Gymnasium
        self._landers: _Landers = make(count)
        self._all = np.arange(count)
        self._steps = np.zeros(count, np.int64)
        self._over = np.ones(count, bool)

    def reset(self, seeds: Sequence[int] | np.ndarray) -> np.ndarray:
        """Begin a new stream of episodes for every lander; returns observations [N, 8]."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} landers")
        self._steps[:], self._over[:] = 0, False
        return self._landers.reset([int(seed) for seed in seeds])

    def step(self, actions: np.ndarray, rows: np.ndarray | None = None) -> Step:
        """One action for each of the landers `rows` (all by default); the others wait."""
        rows = self._all if rows is None else rows
        if self._over[rows].any():
            raise ValueError("a lander whose episode is over must be restarted first")
        observations, rewards, terminated = self._landers.step(rows, actions)
        self._steps[rows] += 1
        truncated = self._steps[rows] >= LIMIT
        self._over[rows] = terminated | truncated
        return Step(observations, rewards, terminated, truncated)

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """`step` where there is one lander, without arrays of one: they take longer than a step.

        Returns (observation [8], reward, terminated, truncated).
        """
        if self.count != 1 or self._over[0]:
            raise ValueError("a lander alone whose episode is not over is needed")
        observation, reward, terminated = self._landers.step_alone(action)
        self._steps[0] += 1
        truncated = bool(self._steps[0] >= LIMIT)
        self._over[0] = terminated or truncated
        return observation, reward, terminated, truncated

    def restart(self, rows: np.ndarray) -> np.ndarray:
        """The next episodes of these landers; returns their first observations [len(rows), 8]."""
        self._steps[rows], self._over[rows] = 0, False
        return self._landers.restart(rows)


def choose_simulator(simulator: Backend) -> str:
    """The simulator to use; `auto` is the first of `NEEDS` that is installed."""
    wanted = list(NEEDS) if simulator == "auto" else [simulator]
    for name in wanted:
        if all(importlib.util.find_spec(module) for module in NEEDS[name]):
            return name
    commands = " or ".join(INSTALL[name] for name in wanted)
    raise UserError(f'world "lunarlander-v3" needs a simulator: {commands}')


class _Landers(Protocol):
    def reset(self, seeds: list[int]) -> np.ndarray: ...

    def step(
        self, rows: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool]: ...

    def restart(self, rows: np.ndarray) -> np.ndarray: ...


class _Actions:
    """Gymnasium asks its space about every action, and converts it: a sixth of a step's time."""

    def contains(self, action: object) -> bool:
        return isinstance(action, int) and 0 <= action < ACTIONS


class _Gymnasium:
    def __init__(self, count: int) -> None:
        from gymnasium.envs.box2d.lunar_lander import LunarLander

        # The bare class: none of what Gymnasium wraps around it is needed here.
        self._landers: list[Any] = [LunarLander() for _ in range(count)]
        for lander in self._landers:
            lander.action_space = _Actions()

    def reset(self, seeds: list[int]) -> np.ndarray:
        return np.stack([lander.reset(seed=seed)[0] for lander, seed in zip(self._landers, seeds)])

    def step(
        self, rows: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        observations = np.empty((len(rows), DIMENSION), np.float32)
        rewards, terminated = np.empty(len(rows)), np.empty(len(rows), bool)
        for i, (row, action) in enumerate(zip(rows.tolist(), actions.tolist(), strict=True)):
            observations[i], rewards[i], terminated[i], _, _ = self._landers[row].step(action)
        return observations, rewards, terminated

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool]:
        observation, reward, terminated, _, _ = self._landers[0].step(action)
        return observation, float(reward), terminated

    def restart(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self._landers[row].reset()[0] for row in rows.tolist()])


class _Envpool:
    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: Any = None

    def reset(self, seeds: list[int]) -> np.ndarray:
        import envpool

        # Seeds are taken at creation only, which costs about a millisecond, and have 31 bits.
        self._pool = envpool.make_gymnasium(
            "LunarLander-v3",
            num_envs=self._count,
            seed=[int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1 for seed in seeds],
            num_threads=1,
            max_episode_steps=LIMIT + 1,  # never reached: `Lunar` counts
        )
        return np.array(self._pool.reset()[0])

    def step(
        self, rows: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # A pool whose batch is all of its environments answers in the order of `rows`.
        observations, rewards, terminated, _, _ = self._pool.step(actions, rows)
        return observations, rewards.astype(np.float64), terminated

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool]:
        observations, rewards, terminated = self.step(_FIRST, np.array([action]))
        return observations[0], float(rewards[0]), bool(terminated[0])

    def restart(self, rows: np.ndarray) -> np.ndarray:
        return self._pool.reset(rows.astype(np.int32))[0]
