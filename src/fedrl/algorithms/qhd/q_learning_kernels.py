"""Compiled parts that every Q-learner has, whatever stands for Q: ε, the replay, when it updates.

All that persists between calls is in the arrays of a learner, the random numbers too: number n is
splitmix64's of (seed, n). `learner._asdict()` saves a client to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedrl.algorithms.splitmix64 import GOLDEN, below, mix

Single = NDArray[np.float32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

SEED, DRAWS, SIZE, HEAD, STEPS, UPDATES, EPISODES, COUNTERS = 0, 1, 2, 3, 4, 5, 6, 7
"""Words of a learner's `counters`: the generator (seed, numbers drawn), the replay (transitions in
it, where the next one goes), and what has been done so far."""

ONE = np.uint64(1)
_part = njit(error_model="numpy", nogil=True)


class Rules(NamedTuple):
    """How a Q-learner learns. A period of 0 never syncs by it; `limit` 0 is the world's own."""

    gamma: float
    lr: float  # η
    batch: int
    gradient_steps: int
    sync_steps: int
    sync_episodes: int
    epsilon_decay: float  # per episode
    epsilon_floor: float
    limit: int
    sign: float = 1.0  # of rewards; a poisoned client's are turned round
    train_every: int = 1
    learning_starts: int = 0
    epsilon: float = 1.0  # where a straight line to the floor begins,
    epsilon_steps: int = 0  # which takes so many steps; 0 falls by episodes
    double: bool = True  # the online weights choose a*, the delayed ones value it
    huber: float = 0.0  # TD errors beyond it count linearly; 0 squares all
    max_grad_norm: float = 0.0  # 0 is no bound


SPECTATOR = Rules(1.0, 0.0, 1, 0, 0, 0, 1.0, 0.0, 0)
"""Of a learner that learns nothing: no updates, and ε stays what it is."""


class QLearner(Protocol):
    """What a client carries: what stands for Q, with a delayed copy, and from `states` on the same
    for every learner. The replay is a ring."""

    @property
    def online(self) -> Single: ...
    @property
    def target(self) -> Single: ...
    @property
    def states(self) -> Single: ...  # [capacity, d]
    @property
    def actions(self) -> Ints: ...  # [capacity]
    @property
    def rewards(self) -> Single: ...  # [capacity]
    @property
    def nexts(self) -> Single: ...  # [capacity, d]
    @property
    def terminal(self) -> Flags: ...  # [capacity]
    @property
    def counters(self) -> Words: ...  # [COUNTERS]
    @property
    def epsilon(self) -> Floats: ...  # [1]


def empty_memory(
    dimension: int, capacity: int, seed: int, epsilon: float
) -> tuple[Single, Ints, Single, Single, Flags, Words, Floats]:
    """`states` to `epsilon` of a learner that has seen nothing."""
    counters = np.zeros(COUNTERS, np.uint64)
    counters[SEED] = seed
    return (
        np.zeros((capacity, dimension), np.float32),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.float32),
        np.zeros((capacity, dimension), np.float32),
        np.zeros(capacity, np.bool_),
        counters,
        np.array([epsilon]),
    )


@_part
def draw(counters: Words) -> np.uint64:
    """The client's next random number."""
    counters[DRAWS] += ONE
    return mix(mix(counters[SEED]) + counters[DRAWS] * GOLDEN)


@_part
def remember(
    learner: QLearner, state: Single, action: int, reward: float, ahead: Single, terminal: bool
) -> None:
    """The transition takes the oldest one's place once the ring is full."""
    counters, capacity = learner.counters, learner.rewards.size
    head = np.int64(counters[HEAD])
    learner.states[head] = state
    learner.actions[head] = action
    learner.rewards[head] = reward
    learner.nexts[head] = ahead
    learner.terminal[head] = terminal
    counters[HEAD] = np.uint64((head + 1) % capacity)
    counters[SIZE] = min(counters[SIZE] + ONE, np.uint64(capacity))


@_part
def pick(counters: Words, picks: Ints) -> None:
    """A minibatch, uniform and with replacement."""
    for b in range(picks.size):
        picks[b] = np.int64(below(draw(counters), counters[SIZE]))


@_part
def exploration(counters: Words, epsilon: Floats, rules: Rules) -> float:
    """The chance of a random action now; before learning starts it is certain."""
    if counters[STEPS] < np.uint64(rules.learning_starts):
        return 1.0
    if rules.epsilon_steps > 0:
        share = min(float(counters[STEPS]) / rules.epsilon_steps, 1.0)
        line = rules.epsilon + share * (rules.epsilon_floor - rules.epsilon)
        epsilon[0] = max(rules.epsilon_floor, line)
    return float(epsilon[0])


@_part
def updates_due(counters: Words, rules: Rules) -> int:
    """Updates that follow the step just counted: none while the replay holds no batch."""
    steps = counters[STEPS]
    if steps <= np.uint64(rules.learning_starts) or counters[SIZE] < np.uint64(rules.batch):
        return 0
    return rules.gradient_steps if steps % np.uint64(rules.train_every) == 0 else 0


@_part
def sync_by_steps(learner: QLearner, rules: Rules) -> None:
    """W⁻ ← W, if the step just counted calls for it."""
    if rules.sync_steps > 0 and learner.counters[STEPS] % np.uint64(rules.sync_steps) == 0:
        learner.target[:] = learner.online


@_part
def finish(learner: QLearner, rules: Rules) -> None:
    """What follows an episode."""
    learner.counters[EPISODES] += ONE
    period = np.uint64(rules.sync_episodes)
    if period > 0 and learner.counters[EPISODES] % period == 0:
        learner.target[:] = learner.online
    if rules.epsilon_steps == 0:
        learner.epsilon[0] = max(rules.epsilon_floor, learner.epsilon[0] * rules.epsilon_decay)


@_part
def scale_state(state: Single, shift: Single, spread: Single) -> None:
    for i in range(state.size):
        state[i] = (state[i] - shift[i]) / spread[i]
