"""Whole ε-greedy episodes of a FedQHD client with its TD updates.

Of a compiled world they are one compiled call. Where the world is simulated on the host
(LunarLander), there is one compiled call between two of its steps: what it costs to hand a
learner's arrays over is paid once, and all else happens inside, the same in the same order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedrl.algorithms import splitmix64
from fedrl.algorithms.qhd import q_learning_kernels as q_learner
from fedrl.algorithms.qhd import td_kernels
from fedrl.algorithms.qhd.q_learning import Bundle, step_by_step
from fedrl.algorithms.qhd.q_learning_kernels import ONE, STEPS, Floats, Ints, Rules, Single
from fedrl.algorithms.qhd.td_kernels import Blocks, Learner, Work, act, fresh, td_update, work
from fedrl.algorithms.splitmix64 import below, uniform
from fedrl.core.numba_cache import cached
from fedrl.envs.discrete import classic_kernels as worlds
from fedrl.envs.interfaces import DiscreteWorld

SOURCES = (td_kernels, q_learner, splitmix64, worlds)
"""Modules that the kernels here are compiled from, beside this one."""

Scene = tuple[Single, Floats, Single, Single]
"""Two scaled states [2, d], now and next; Q [|A|]; the scaling's shift and scale [d]."""
Held = tuple[Bundle, Bundle, Bundle, Bundle, Scene]
"""Blocks, learner, rules, scratch and scene."""

_part = njit(error_model="numpy", nogil=True)
_compiled = cached(*SOURCES, nogil=True)


@_part
def choose(
    blocks: Blocks, learner: Learner, rules: Rules, scratch: Work, seen: Single, q: Floats
) -> int:
    """ε-greedy in the state seen[0]."""
    chance = q_learner.exploration(learner.counters, learner.epsilon, rules)
    if uniform(q_learner.draw(learner.counters)) < chance:
        # int64, as argmax's: numba would make a float of the two kinds of integers
        return int(np.int64(below(q_learner.draw(learner.counters), np.uint64(q.size))))
    act(blocks, learner.online, seen, 0, scratch.ahead[0], q)
    return int(np.argmax(q))


@_part
def learn(
    blocks: Blocks,
    learner: Learner,
    rules: Rules,
    scratch: Work,
    seen: Single,
    action: int,
    reward: float,
    terminal: bool,
) -> None:
    """What follows a step from seen[0] to seen[1], which is then the state that is seen now."""
    q_learner.remember(learner, seen[0], action, reward, seen[1], terminal)
    seen[0] = seen[1]
    learner.counters[STEPS] += ONE
    for _ in range(q_learner.updates_due(learner.counters, rules)):
        q_learner.pick(learner.counters, scratch.picks)
        td_update(blocks, learner, scratch.picks, rules, scratch)
    q_learner.sync_by_steps(learner, rules)


@_compiled
def compiled_episodes(
    kernel: int,
    count: int,
    blocks: Blocks,
    shift: Single,
    spread: Single,
    learner: Learner,
    rules: Rules,
) -> tuple[Floats, Ints]:
    """`count` episodes of a compiled world; their returns [count] and lengths [count].

    The learner sees (observation - shift) / spread. Each step acts, stores the transition and,
    if they are due, makes updates; a cut at the limit is stored as not terminal. W⁻ ← W after
    every `sync_steps` steps and every `sync_episodes` episodes of the client's life.
    """
    actions, size = learner.online.shape[0], learner.states.shape[1]
    scratch = work(blocks.phase.shape[0], rules.batch, actions)
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    state, uniforms = np.empty(worlds.MOST_STATE), np.empty(worlds.MOST_STATE)
    seen, q = np.empty((2, size), np.float32), np.empty(actions)
    limit = rules.limit if rules.limit > 0 else worlds.LIMIT[kernel]
    for episode in range(count):
        for i in range(worlds.DRAWS[kernel]):
            uniforms[i] = uniform(q_learner.draw(learner.counters))
        worlds.reset(kernel, state, uniforms)
        worlds.observe(kernel, state, seen[0])
        q_learner.scale_state(seen[0], shift, spread)
        over = False
        while not over and lengths[episode] < limit:
            action = choose(blocks, learner, rules, scratch, seen, q)
            reward, over = worlds.step(kernel, state, action)
            worlds.observe(kernel, state, seen[1])
            q_learner.scale_state(seen[1], shift, spread)
            learn(blocks, learner, rules, scratch, seen, action, reward, over)
            returns[episode] += reward
            lengths[episode] += 1
        q_learner.finish(learner, rules)
    return returns, lengths


@_compiled
def first_action(held: Held, first: Single) -> int:
    """The action for an episode's first observation."""
    blocks, learner, rules, scratch, (seen, q, shift, spread) = held
    seen[0] = first
    q_learner.scale_state(seen[0], shift, spread)
    return choose(Blocks(*blocks), Learner(*learner), Rules(*rules), Work(*scratch), seen, q)


@_compiled
def next_action(
    held: Held, action: int, observation: Single, reward: float, terminal: bool, over: bool
) -> int:
    """What follows a step, and the next action; after an episode's last step it means nothing."""
    encoder, client = Blocks(*held[0]), Learner(*held[1])
    how, room = Rules(*held[2]), Work(*held[3])
    seen, q, shift, spread = held[4]
    seen[1] = observation
    q_learner.scale_state(seen[1], shift, spread)
    learn(encoder, client, how, room, seen, action, reward, terminal)
    if not over:
        return choose(encoder, client, how, room, seen, q)
    q_learner.finish(client, how)
    return 0


def run_episodes(
    world: DiscreteWorld, count: int, blocks: Blocks, learner: Learner, rules: Rules, seed: int
) -> tuple[Floats, Ints]:
    """Returns and lengths of `count` episodes; only a host's world draws from `seed`."""
    shift, spread = world.scaling.single
    if world.kernel is not None:
        return compiled_episodes(world.kernel, count, blocks, shift, spread, learner, rules)
    scratch = work(blocks.phase.shape[0], rules.batch, world.actions)
    scene = np.empty((2, world.dimension), np.float32), np.empty(world.actions), shift, spread
    held = tuple(blocks), tuple(learner), tuple(rules), tuple(scratch), scene
    return step_by_step(world, count, seed, held, first_action, next_action)


def evaluate(world: DiscreteWorld, count: int, blocks: Blocks, online: Single, seed: int) -> Floats:
    """Returns [count] of greedy episodes that teach nothing; their starts depend on the seed only.

    A learner with a replay of one place and no updates is a spectator.
    """
    rows = np.ascontiguousarray(online)
    spectator = fresh(len(rows), 1, world.dimension, 1, seed % 2**63, epsilon=0.0)
    spectator = spectator._replace(online=rows, target=rows)
    rules = q_learner.SPECTATOR._replace(limit=world.limit)
    return run_episodes(world, count, blocks, spectator, rules, seed)[0]
