"""Whole ε-greedy episodes of a DQN client with its updates: compiled worlds in one call, or a host.

The replay, the random numbers and the cache of compiled code are as in `qhd_episodes`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from fedrl.algorithms.momentum import tabular_kernels
from fedrl.algorithms.momentum.tabular_kernels import uniform
from fedrl.algorithms.qhd import episodes as qhd_episodes
from fedrl.algorithms.qhd import td_kernels
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.network import Learner, Shape, Work
from fedrl.algorithms.qhd.episodes import (
    below,
    draw,
    exploration,
    fingerprint,
    finish,
    pick,
    remember,
    scale_state,
    sync_by_steps,
    updates_due,
)
from fedrl.algorithms.qhd.q_learning import Bundle
from fedrl.algorithms.qhd.q_learning import host_episodes as host
from fedrl.algorithms.qhd.td_kernels import STEPS, Floats, Ints, Rules, Single
from fedrl.envs.discrete import classic_kernels as worlds
from fedrl.envs.discrete.worlds import HOST, World

SOURCES = (dqn, td_kernels, qhd_episodes, tabular_kernels, worlds)
"""Modules that the kernels here are compiled from, beside this one."""

Scene = tuple[Single, Single, Single, Single]
"""The scaled state now and next, [1, d] each; the scaling's shift and scale [d]."""

_ONE = np.uint64(1)
_compiled = njit(cache=True, error_model="numpy", nogil=True)
_part = njit(error_model="numpy", nogil=True)


@_part
def choose(learner: Learner, shape: Shape, rules: Rules, seen: Single, scratch: Work) -> int:
    """An action for the one state of `seen` [1, d]; `scratch` is for one state."""
    chance = exploration(learner.counters, learner.epsilon, rules)
    if uniform(draw(learner.counters)) < chance:
        # int64, as argmax's: numba would make a float of the two kinds of integers
        return int(np.int64(below(draw(learner.counters), np.uint64(shape[3]))))
    dqn.values(learner.online, shape, seen, scratch.d1, scratch.d2, scratch.dq)
    return dqn.best(scratch.dq[0])


@_part
def learn(
    learner: Learner,
    shape: Shape,
    rules: Rules,
    work: Work,
    state: Single,
    action: int,
    reward: float,
    ahead: Single,
    terminal: bool,
) -> None:
    """What follows a step: it is remembered, there are updates, and a sync if one is due."""
    # compiled for any learner with these names of a replay's arrays
    remember(learner, state, action, reward, ahead, terminal)  # type: ignore[arg-type]
    counters = learner.counters
    counters[STEPS] += _ONE
    for _ in range(updates_due(counters, rules)):
        pick(counters, work.picks)
        dqn.td_update(learner, shape, rules, work)
    sync_by_steps(learner, rules)  # type: ignore[arg-type]


def _build(sources: int) -> tuple[Callable[..., Any], ...]:
    @_compiled
    def begin(
        learner: Bundle,
        shape: Shape,
        rules: Bundle,
        work: Bundle,
        one: Bundle,
        scene: Scene,
        first: Single,
    ) -> int:
        """The action for an episode's first observation."""
        _ = sources
        seen, _, shift, spread = scene
        seen[0] = first
        scale_state(seen[0], shift, spread)
        return choose(Learner(*learner), shape, Rules(*rules), seen, Work(*one))

    @_compiled
    def advance(
        learner: Bundle,
        shape: Shape,
        rules: Bundle,
        work: Bundle,
        one: Bundle,
        scene: Scene,
        action: int,
        observation: Single,
        reward: float,
        terminal: bool,
        over: bool,
    ) -> int:
        """What follows a step, and the next action; after an episode's last it means nothing."""
        _ = sources
        client, how = Learner(*learner), Rules(*rules)
        seen, ahead, shift, spread = scene
        ahead[0] = observation
        scale_state(ahead[0], shift, spread)
        learn(client, shape, how, Work(*work), seen[0], action, reward, ahead[0], terminal)
        seen[:] = ahead
        if not over:
            return choose(client, shape, how, seen, Work(*one))
        finish(client, how)  # type: ignore[arg-type]
        return 0

    @_compiled
    def compiled_episodes(
        kind: int,
        count: int,
        shape: Shape,
        shift: Single,
        spread: Single,
        learner: Learner,
        rules: Rules,
    ) -> tuple[Floats, Ints]:
        """`count` episodes of a compiled world; returns their returns [count] and lengths [count].

        The learner sees (observation - shift) / spread. A cut at the limit is not terminal.
        """
        _ = sources
        work, one = dqn.work(shape, rules.batch), dqn.work(shape, 1)
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        state, uniforms = np.empty(worlds.MOST_STATE), np.empty(worlds.MOST_STATE)
        seen, ahead = np.empty((1, shape[0]), np.float32), np.empty((1, shape[0]), np.float32)
        for episode in range(count):
            for i in range(worlds.DRAWS[kind]):
                uniforms[i] = uniform(draw(learner.counters))
            worlds.reset(kind, state, uniforms)
            worlds.observe(kind, state, seen[0])
            scale_state(seen[0], shift, spread)
            over = False
            while not over and lengths[episode] < rules.limit:
                action = choose(learner, shape, rules, seen, one)
                reward, over = worlds.step(kind, state, action)
                worlds.observe(kind, state, ahead[0])
                scale_state(ahead[0], shift, spread)
                learn(learner, shape, rules, work, seen[0], action, reward, ahead[0], over)
                seen[:] = ahead
                returns[episode] += reward
                lengths[episode] += 1
            finish(learner, rules)  # type: ignore[arg-type]
        return returns, lengths

    return begin, advance, compiled_episodes


begin, advance, compiled_episodes = _build(fingerprint(*SOURCES))


def host_episodes(
    world: World, count: int, shape: Shape, learner: Learner, rules: Rules, seed: int
) -> tuple[Floats, Ints]:
    """The same where the world is not compiled."""
    work, one = dqn.work(shape, rules.batch), dqn.work(shape, 1)
    shift, spread = (part.astype(np.float32) for part in world.scaling)
    seen, ahead = (np.empty((1, shape[0]), np.float32) for _ in range(2))
    scene = seen, ahead, shift, spread
    held = tuple(learner), shape, tuple(rules), tuple(work), tuple(one), scene
    return host(world, count, seed, partial(begin, *held), partial(advance, *held))


def run_episodes(
    world: World, count: int, shape: Shape, learner: Learner, rules: Rules, seed: int
) -> tuple[Floats, Ints]:
    """Returns and lengths of `count` episodes; only a host's world draws from `seed`."""
    if world.kind == HOST:
        return host_episodes(world, count, shape, learner, rules, seed)
    shift, spread = (part.astype(np.float32) for part in world.scaling)
    return compiled_episodes(world.kind, count, shape, shift, spread, learner, rules)


def evaluate(world: World, count: int, shape: Shape, weights: Single, seed: int) -> Floats:
    """Returns [count] of greedy episodes that teach nothing; their starts depend on the seed only.

    A learner with a replay of one place and no updates is a spectator.
    """
    spectator = dqn.fresh(shape, weights, 1, seed % 2**63, epsilon=0.0)
    still = Rules(1.0, 0.0, 1, 0, 0, 0, 1.0, 0.0, world.limit)
    return run_episodes(world, count, shape, spectator, still, seed)[0]
