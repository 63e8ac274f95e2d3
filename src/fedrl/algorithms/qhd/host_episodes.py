"""QHD where the world is not compiled (LunarLander): the loop of `qhd_episodes` around a host.

Between two steps of the world there is one compiled call: what it costs to hand a learner's arrays
over is paid once, and all else that the loop of compiled worlds does happens inside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numba import njit

from fedrl.algorithms.momentum import tabular_kernels
from fedrl.algorithms.momentum.tabular_kernels import uniform
from fedrl.algorithms.qhd import episodes as qhd_episodes
from fedrl.algorithms.qhd import td_kernels
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
from fedrl.algorithms.qhd.q_learning import Bundle, host_episodes
from fedrl.algorithms.qhd.td_kernels import (
    STEPS,
    Blocks,
    Floats,
    Ints,
    Learner,
    Rules,
    Single,
    Work,
    act,
    fresh,
    td_update,
    work,
)
from fedrl.envs.discrete.worlds import World

SOURCES = (td_kernels, qhd_episodes, tabular_kernels)
"""Modules that the kernels here are compiled from, beside this one."""

Scene = tuple[Single, Floats, Single, Single]
"""Two scaled states [2, d], now and next; Q [|A|]; the scaling's shift and scale [d]."""

_ONE = np.uint64(1)
_compiled = njit(cache=True, error_model="numpy", nogil=True)
_part = njit(error_model="numpy", nogil=True)


@_part
def choose(
    blocks: Blocks, learner: Learner, rules: Rules, scratch: Work, seen: Single, q: Floats
) -> int:
    """ε-greedy in the state seen[0]."""
    chance = exploration(learner.counters, learner.epsilon, rules)
    if uniform(draw(learner.counters)) < chance:
        # int64, as argmax's: numba would make a float of the two kinds of integers
        return int(np.int64(below(draw(learner.counters), np.uint64(q.size))))
    act(blocks, learner.online, seen, 0, scratch.ahead[0], q)
    return int(np.argmax(q))


def _build(sources: int) -> tuple[Callable[..., int], Callable[..., int]]:
    @_compiled
    def begin(
        blocks: Bundle, learner: Bundle, rules: Bundle, scratch: Bundle, scene: Scene, first: Single
    ) -> int:
        """The action for an episode's first observation."""
        _ = sources
        seen, q, shift, spread = scene
        seen[0] = first
        scale_state(seen[0], shift, spread)
        client, how = Learner(*learner), Rules(*rules)
        return choose(Blocks(*blocks), client, how, Work(*scratch), seen, q)

    @_compiled
    def advance(
        blocks: Bundle,
        learner: Bundle,
        rules: Bundle,
        scratch: Bundle,
        scene: Scene,
        action: int,
        observation: Single,
        reward: float,
        terminal: bool,
        over: bool,
    ) -> int:
        """What follows a step, and the next action; after an episode's last step it means nothing.

        The same, in the same order, as in the loop of `qhd_episodes.run_episodes`.
        """
        _ = sources
        encoder, client = Blocks(*blocks), Learner(*learner)
        how, room = Rules(*rules), Work(*scratch)
        seen, q, shift, spread = scene
        counters = client.counters
        seen[1] = observation
        scale_state(seen[1], shift, spread)
        remember(client, seen[0], action, reward, seen[1], terminal)
        seen[0] = seen[1]
        counters[STEPS] += _ONE
        for _ in range(updates_due(counters, how)):
            pick(counters, room.picks)
            td_update(encoder, client, room.picks, how, room)
        sync_by_steps(client, how)
        if not over:
            return choose(encoder, client, how, room, seen, q)
        finish(client, how)
        return 0

    return begin, advance


begin, advance = _build(fingerprint(*SOURCES))


def run_episodes(
    world: World, count: int, blocks: Blocks, learner: Learner, rules: Rules, seed: int
) -> tuple[Floats, Ints]:
    """`count` episodes as `qhd_episodes.run_episodes` plays them; returns and lengths [count]."""
    scratch = work(blocks.phase.shape[0], rules.batch, world.actions)
    shift, spread = (part.astype(np.float32) for part in world.scaling)
    scene = np.empty((2, world.dimension), np.float32), np.empty(world.actions), shift, spread
    held = tuple(blocks), tuple(learner), tuple(rules), tuple(scratch), scene
    return host_episodes(world, count, seed, partial(begin, *held), partial(advance, *held))


def evaluate(world: World, count: int, blocks: Blocks, online: Single, seed: int) -> Floats:
    """Returns [count] of greedy episodes that teach nothing."""
    spectator = fresh(online.shape[0], 1, world.dimension, 1, seed % 2**63, epsilon=0.0)
    still = Rules(1.0, 0.0, 1, 0, 0, 0, 1.0, 0.0, world.limit)
    rows = np.ascontiguousarray(online)
    return run_episodes(
        world, count, blocks, spectator._replace(online=rows, target=rows), still, seed
    )[0]
