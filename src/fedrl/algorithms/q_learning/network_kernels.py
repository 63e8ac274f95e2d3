"""Between two updates of a network: act, step, remember, compiled; the updates are JAX's.

The order of everything, the random numbers too, is that of `qhd.dqn.episodes`: with the same
updates a client plays the same episodes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedrl.algorithms import splitmix64
from fedrl.algorithms.qhd import q_learning_kernels as q_learner
from fedrl.algorithms.qhd.dqn import episodes, network
from fedrl.algorithms.qhd.dqn.episodes import choose
from fedrl.algorithms.qhd.dqn.network import Learner, Shape, Work
from fedrl.algorithms.qhd.q_learning_kernels import ONE, STEPS, Floats, Rules, Single
from fedrl.algorithms.splitmix64 import uniform
from fedrl.core.numba_cache import cached
from fedrl.envs.discrete import classic_kernels as worlds

SOURCES = (episodes, network, q_learner, splitmix64, worlds)
"""Modules that the kernels here are compiled from, beside this one."""

RETURN, LENGTH = 0, 1
"""Of an episode's tally so far."""

_part = njit(error_model="numpy", nogil=True)
_compiled = cached(*SOURCES, nogil=True)

Due = tuple[int, bool]
"""Updates that follow the step just made, and whether the delayed weights are copied after them."""


@_part
def noted(
    learner: Learner,
    rules: Rules,
    seen: Single,
    action: int,
    reward: float,
    ahead: Single,
    terminal: bool,
) -> Due:
    """What follows a step from `seen` to `ahead`, which is then the state that is seen now."""
    q_learner.remember(learner, seen[0], action, reward, ahead[0], terminal)
    learner.counters[STEPS] += ONE
    seen[:] = ahead
    copies = rules.sync_steps > 0 and learner.counters[STEPS] % np.uint64(rules.sync_steps) == 0
    return q_learner.updates_due(learner.counters, rules), copies


@_compiled
def begin(
    kernel: int, state: Floats, learner: Learner, seen: Single, shift: Single, spread: Single
) -> None:
    """A compiled world's next episode."""
    uniforms = np.empty(worlds.MOST_STATE)
    for i in range(worlds.DRAWS[kernel]):
        uniforms[i] = uniform(q_learner.draw(learner.counters))
    worlds.reset(kernel, state, uniforms)
    worlds.observe(kernel, state, seen[0])
    q_learner.scale_state(seen[0], shift, spread)


@_compiled
def until_due(
    kernel: int,
    state: Floats,
    shape: Shape,
    learner: Learner,
    rules: Rules,
    single: Work,
    seen: Single,
    ahead: Single,
    shift: Single,
    spread: Single,
    tally: Floats,
) -> tuple[int, bool, bool]:
    """Steps of a compiled world's episode until something is due: updates, a copy, or its end."""
    while True:
        action = choose(learner, shape, rules, seen, single)
        reward, terminal = worlds.step(kernel, state, action)
        worlds.observe(kernel, state, ahead[0])
        q_learner.scale_state(ahead[0], shift, spread)
        updates, copies = noted(learner, rules, seen, action, reward, ahead, terminal)
        tally[RETURN] += reward
        tally[LENGTH] += 1
        over = terminal or tally[LENGTH] >= rules.limit
        if updates > 0 or copies or over:
            return updates, copies, over


@_compiled
def look(observation: Single, out: Single, shift: Single, spread: Single) -> None:
    """An observation of a host's world as the learner sees it."""
    out[0] = observation
    q_learner.scale_state(out[0], shift, spread)


@_compiled
def act(learner: Learner, shape: Shape, rules: Rules, seen: Single, single: Work) -> int:
    return choose(learner, shape, rules, seen, single)


@_compiled
def note(
    learner: Learner,
    rules: Rules,
    seen: Single,
    action: int,
    reward: float,
    ahead: Single,
    terminal: bool,
) -> Due:
    return noted(learner, rules, seen, action, reward, ahead, terminal)


@_compiled
def draw_batches(learner: Learner, out: Single) -> None:
    """Minibatches of the replay into `out` [n, B, 2d + 3]: s, s', a, r, and 1 if s' is terminal."""
    count, batch, _ = out.shape
    d = learner.states.shape[1]
    picks = np.empty(batch, np.int64)
    for i in range(count):
        q_learner.pick(learner.counters, picks)
        for b in range(batch):
            row = picks[b]
            out[i, b, :d] = learner.states[row]
            out[i, b, d : 2 * d] = learner.nexts[row]
            out[i, b, 2 * d] = learner.actions[row]
            out[i, b, 2 * d + 1] = learner.rewards[row]
            out[i, b, 2 * d + 2] = learner.terminal[row]


@_compiled
def finish_episode(learner: Learner, rules: Rules) -> None:
    """What follows an episode, but for the delayed weights."""
    q_learner.finish(learner, rules)
