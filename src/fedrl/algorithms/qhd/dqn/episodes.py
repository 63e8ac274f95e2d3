"""Whole ε-greedy episodes of a DQN client with its updates: compiled worlds in one call, or a host.

The replay, the random numbers and the calls around a host's world are as in `qhd.episodes`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedrl.algorithms import splitmix64
from fedrl.algorithms.qhd import q_learning_kernels as q_learner
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.network import Learner, Shape, Work
from fedrl.algorithms.qhd.q_learning import Bundle, step_by_step
from fedrl.algorithms.qhd.q_learning_kernels import ONE, STEPS, Floats, Ints, Rules, Single
from fedrl.algorithms.splitmix64 import below, uniform
from fedrl.core.numba_cache import cached
from fedrl.envs.discrete import classic_kernels as worlds
from fedrl.envs.interfaces import DiscreteWorld

SOURCES = (dqn, q_learner, splitmix64, worlds)
"""Modules that the kernels here are compiled from, beside this one."""

Scene = tuple[Single, Single, Single, Single]
"""The scaled state now and next, [1, d] each; the scaling's shift and scale [d]."""
Held = tuple[Bundle, Shape, Bundle, Bundle, Bundle, Scene]
"""Learner, shape, rules, scratch of a batch and of one state, scene."""

_part = njit(error_model="numpy", nogil=True)
_compiled = cached(*SOURCES, nogil=True)


@_part
def choose(learner: Learner, shape: Shape, rules: Rules, seen: Single, scratch: Work) -> int:
    """An action for the one state of `seen` [1, d]; `scratch` is for one state."""
    chance = q_learner.exploration(learner.counters, learner.epsilon, rules)
    if uniform(q_learner.draw(learner.counters)) < chance:
        # int64, as argmax's: numba would make a float of the two kinds of integers
        return int(np.int64(below(q_learner.draw(learner.counters), np.uint64(shape[3]))))
    dqn.values(learner.online, shape, seen, scratch.d1, scratch.d2, scratch.dq)
    return dqn.best(scratch.dq[0])


@_part
def learn(
    learner: Learner,
    shape: Shape,
    rules: Rules,
    work: Work,
    seen: Single,
    action: int,
    reward: float,
    ahead: Single,
    terminal: bool,
) -> None:
    """What follows a step from `seen` to `ahead`, which is then the state that is seen now."""
    q_learner.remember(learner, seen[0], action, reward, ahead[0], terminal)
    learner.counters[STEPS] += ONE
    for _ in range(q_learner.updates_due(learner.counters, rules)):
        q_learner.pick(learner.counters, work.picks)
        dqn.td_update(learner, shape, rules, work)
    q_learner.sync_by_steps(learner, rules)
    seen[:] = ahead


@_compiled
def compiled_episodes(
    kernel: int,
    count: int,
    shape: Shape,
    shift: Single,
    spread: Single,
    learner: Learner,
    rules: Rules,
) -> tuple[Floats, Ints]:
    """`count` episodes of a compiled world; their returns [count] and lengths [count].

    The learner sees (observation - shift) / spread. A cut at the limit is not terminal.
    """
    work, single = dqn.work(shape, rules.batch), dqn.work(shape, 1)
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    state, uniforms = np.empty(worlds.MOST_STATE), np.empty(worlds.MOST_STATE)
    seen, ahead = np.empty((1, shape[0]), np.float32), np.empty((1, shape[0]), np.float32)
    for episode in range(count):
        for i in range(worlds.DRAWS[kernel]):
            uniforms[i] = uniform(q_learner.draw(learner.counters))
        worlds.reset(kernel, state, uniforms)
        worlds.observe(kernel, state, seen[0])
        q_learner.scale_state(seen[0], shift, spread)
        over = False
        while not over and lengths[episode] < rules.limit:
            action = choose(learner, shape, rules, seen, single)
            reward, over = worlds.step(kernel, state, action)
            worlds.observe(kernel, state, ahead[0])
            q_learner.scale_state(ahead[0], shift, spread)
            learn(learner, shape, rules, work, seen, action, reward, ahead, over)
            returns[episode] += reward
            lengths[episode] += 1
        q_learner.finish(learner, rules)
    return returns, lengths


@_compiled
def first_action(held: Held, first: Single) -> int:
    """The action for an episode's first observation."""
    learner, shape, rules, _, single, (seen, _, shift, spread) = held
    seen[0] = first
    q_learner.scale_state(seen[0], shift, spread)
    return choose(Learner(*learner), shape, Rules(*rules), seen, Work(*single))


@_compiled
def next_action(
    held: Held, action: int, observation: Single, reward: float, terminal: bool, over: bool
) -> int:
    """What follows a step, and the next action; after an episode's last it means nothing."""
    client, shape, how = Learner(*held[0]), held[1], Rules(*held[2])
    seen, ahead, shift, spread = held[5]
    ahead[0] = observation
    q_learner.scale_state(ahead[0], shift, spread)
    learn(client, shape, how, Work(*held[3]), seen, action, reward, ahead, terminal)
    if not over:
        return choose(client, shape, how, seen, Work(*held[4]))
    q_learner.finish(client, how)
    return 0


def run_episodes(
    world: DiscreteWorld, count: int, shape: Shape, learner: Learner, rules: Rules, seed: int
) -> tuple[Floats, Ints]:
    """Returns and lengths of `count` episodes; only a host's world draws from `seed`."""
    shift, spread = world.scaling.single
    if world.kernel is not None:
        return compiled_episodes(world.kernel, count, shape, shift, spread, learner, rules)
    work, single = dqn.work(shape, rules.batch), dqn.work(shape, 1)
    seen, ahead = (np.empty((1, shape[0]), np.float32) for _ in range(2))
    scene = seen, ahead, shift, spread
    held = tuple(learner), shape, tuple(rules), tuple(work), tuple(single), scene
    return step_by_step(world, count, seed, held, first_action, next_action)


def evaluate(world: DiscreteWorld, count: int, shape: Shape, weights: Single, seed: int) -> Floats:
    """Returns [count] of greedy episodes that teach nothing; their starts depend on the seed only.

    A learner with a replay of one place and no updates is a spectator.
    """
    spectator = dqn.fresh(shape, weights, 1, seed % 2**63, epsilon=0.0)
    rules = q_learner.SPECTATOR._replace(limit=world.limit)
    return run_episodes(world, count, shape, spectator, rules, seed)[0]
