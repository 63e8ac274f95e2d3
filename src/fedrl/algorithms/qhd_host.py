"""QHD where the world is not compiled (LunarLander): the same loop on the host, step by step."""

from __future__ import annotations

import numpy as np

from fedrl.algorithms import qhd_kernels as kernels
from fedrl.algorithms.pg_tabular_kernels import uniform
from fedrl.algorithms.qhd_episodes import below, draw, pick, remember
from fedrl.envs.discrete import World

ONLY = np.zeros(1, np.int64)
"""The rows of a call with one lander."""


def run_episodes(
    world: World,
    count: int,
    blocks: kernels.Blocks,
    learner: kernels.Learner,
    rules: kernels.Rules,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """`count` episodes as `qhd_episodes.run_episodes` plays them; returns and lengths [count].

    `seed` begins the simulator's own stream, which cannot be kept from one call to the next.
    """
    actions, counters, epsilon = world.actions, learner.counters, learner.epsilon
    scratch = kernels.work(blocks.phase.shape[0], rules.batch, actions)
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    seen, q = np.empty((2, world.dimension), np.float32), np.empty(actions)
    lander = world.landers(1)
    observation = lander.reset([seed])[0]
    for episode in range(count):
        if episode:
            observation = lander.restart(ONLY)[0]
        seen[0] = world.scaling(observation)
        over = False
        while not over:
            if uniform(draw(counters)) < epsilon[0]:
                action = int(below(draw(counters), np.uint64(actions)))
            else:
                kernels.act(blocks, learner.online, seen, 0, scratch.ahead[0], q)
                action = int(np.argmax(q))
            after = lander.step(np.array([action]))
            over = bool(after.terminated[0] or after.truncated[0])
            seen[1] = world.scaling(after.observations[0])
            reward, ended = float(after.rewards[0]), bool(after.terminated[0])
            remember(learner, seen[0], action, reward, seen[1], ended)
            seen[0] = seen[1]
            returns[episode] += reward
            lengths[episode] += 1
            counters[kernels.STEPS] += np.uint64(1)
            if counters[kernels.SIZE] >= rules.batch:
                for _ in range(rules.updates_per_step):
                    pick(counters, scratch.picks)
                    kernels.td_update(blocks, learner, scratch.picks, rules, scratch)
            if rules.sync_steps and counters[kernels.STEPS] % np.uint64(rules.sync_steps) == 0:
                learner.target[:] = learner.online
        counters[kernels.EPISODES] += np.uint64(1)
        period = np.uint64(rules.sync_episodes)
        if period and counters[kernels.EPISODES] % period == 0:
            learner.target[:] = learner.online
        epsilon[0] = max(rules.epsilon_floor, epsilon[0] * rules.epsilon_decay)
    return returns, lengths


def evaluate(
    world: World, count: int, blocks: kernels.Blocks, online: np.ndarray, seed: int
) -> np.ndarray:
    """Returns [count] of greedy episodes that teach nothing."""
    spectator = kernels.fresh(online.shape[0], 1, world.dimension, 1, seed % 2**63, epsilon=0.0)
    still = kernels.Rules(1.0, 0.0, 1, 0, 0, 0, 1.0, 0.0, world.limit)
    learner = spectator._replace(online=np.ascontiguousarray(online), target=online)
    return run_episodes(world, count, blocks, learner, still, seed)[0]
