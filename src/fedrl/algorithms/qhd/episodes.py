"""Whole ε-greedy episodes of a client with its TD updates, in one compiled call, and the replay.

numba's cache looks for changes in a function's own file only, but compiled code holds what it took
from other files. So `run_episodes` is built by a function of its own: with a fingerprint of those
files in its closure, code from an older version of them is not taken from the cache. The small
functions that read other files are not cached at all: they compile into those that are.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit

from fedrl.algorithms.momentum import tabular_kernels
from fedrl.algorithms.momentum.tabular_kernels import mix, uniform
from fedrl.algorithms.qhd import td_kernels
from fedrl.algorithms.qhd.td_kernels import (
    DRAWS,
    EPISODES,
    HEAD,
    SEED,
    SIZE,
    STEPS,
    Blocks,
    Floats,
    Ints,
    Learner,
    Rules,
    Single,
    Words,
    act,
    fresh,
    td_update,
    work,
)
from fedrl.envs.discrete import classic_kernels as worlds

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_compiled = njit(cache=True, error_model="numpy", nogil=True)
_part = njit(error_model="numpy", nogil=True)

SOURCES = (td_kernels, worlds, tabular_kernels)
"""Modules that `run_episodes` is compiled from, beside this one."""


def fingerprint(*modules: ModuleType) -> int:
    """A number that changes with the modules' text."""
    return zlib.crc32("".join(map(inspect.getsource, modules)).encode())


@_part
def draw(counters: Words) -> np.uint64:
    """The client's next random number."""
    counters[DRAWS] += _ONE
    return mix(mix(counters[SEED]) + counters[DRAWS] * _GOLDEN)


@_part
def below(number: np.uint64, bound: np.uint64) -> np.uint64:
    """A number in [0, bound), bound < 2³²; its bias is below bound / 2³²."""
    return ((number >> _HALF) * bound) >> _HALF


@_part
def remember(
    learner: Learner, state: Single, action: int, reward: float, ahead: Single, terminal: bool
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
    counters[SIZE] = min(counters[SIZE] + _ONE, np.uint64(capacity))


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
def sync_by_steps(learner: Learner, rules: Rules) -> None:
    """W⁻ ← W, if the step just counted calls for it."""
    if rules.sync_steps > 0 and learner.counters[STEPS] % np.uint64(rules.sync_steps) == 0:
        learner.target[:] = learner.online


@_part
def finish(learner: Learner, rules: Rules) -> None:
    """What follows an episode."""
    learner.counters[EPISODES] += _ONE
    period = np.uint64(rules.sync_episodes)
    if period > 0 and learner.counters[EPISODES] % period == 0:
        learner.target[:] = learner.online
    if rules.epsilon_steps == 0:
        learner.epsilon[0] = max(rules.epsilon_floor, learner.epsilon[0] * rules.epsilon_decay)


@_part
def scale_state(state: Single, shift: Single, spread: Single) -> None:
    for i in range(state.size):
        state[i] = (state[i] - shift[i]) / spread[i]


def _build(sources: int) -> Callable[..., Any]:
    @_compiled
    def run_episodes(
        kind: int,
        count: int,
        blocks: Blocks,
        shift: Single,
        spread: Single,
        learner: Learner,
        rules: Rules,
    ) -> tuple[Floats, Ints]:
        """`count` episodes of a world; returns their returns [count] and lengths [count].

        The learner sees (observation - shift) / spread. Each step acts, stores the transition and,
        if they are due, makes updates; a cut at the limit is stored as not terminal. W⁻ ← W after
        every `sync_steps` steps and every `sync_episodes` episodes of the client's life.
        """
        _ = sources
        actions, size = learner.online.shape[0], learner.states.shape[1]
        counters, epsilon = learner.counters, learner.epsilon
        scratch = work(blocks.phase.shape[0], rules.batch, actions)
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        state, uniforms = np.empty(worlds.MOST_STATE), np.empty(worlds.MOST_STATE)
        seen, q = np.empty((2, size), np.float32), np.empty(actions)
        limit = rules.limit if rules.limit > 0 else worlds.LIMIT[kind]
        for episode in range(count):
            for i in range(worlds.DRAWS[kind]):
                uniforms[i] = uniform(draw(counters))
            worlds.reset(kind, state, uniforms)
            worlds.observe(kind, state, seen[0])
            scale_state(seen[0], shift, spread)
            over = False
            while not over and lengths[episode] < limit:
                if uniform(draw(counters)) < exploration(counters, epsilon, rules):
                    action = int(below(draw(counters), np.uint64(actions)))
                else:
                    act(blocks, learner.online, seen, 0, scratch.ahead[0], q)
                    action = int(np.argmax(q))
                reward, over = worlds.step(kind, state, action)
                worlds.observe(kind, state, seen[1])
                scale_state(seen[1], shift, spread)
                remember(learner, seen[0], action, reward, seen[1], over)
                seen[0] = seen[1]
                returns[episode] += reward
                lengths[episode] += 1
                counters[STEPS] += _ONE
                for _ in range(updates_due(counters, rules)):
                    pick(counters, scratch.picks)
                    td_update(blocks, learner, scratch.picks, rules, scratch)
                sync_by_steps(learner, rules)
            finish(learner, rules)
        return returns, lengths

    return run_episodes


run_episodes = _build(fingerprint(*SOURCES))


def evaluate(
    kind: int,
    count: int,
    blocks: Blocks,
    shift: Single,
    spread: Single,
    online: Single,
    seed: int,
    limit: int = 0,
) -> Floats:
    """Returns [count] of greedy episodes that teach nothing; their starts depend on the seed only.

    A learner with a replay of one place and no updates is a spectator.
    """
    spectator = fresh(online.shape[0], 1, len(blocks.origin), 1, seed, epsilon=0.0)
    still = Rules(1.0, 0.0, 1, 0, 0, 0, 1.0, 0.0, limit)
    learner = spectator._replace(online=online, target=online)
    return run_episodes(kind, count, blocks, shift, spread, learner, still)[0]
