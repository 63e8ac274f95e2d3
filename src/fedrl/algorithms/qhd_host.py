"""QHD where the world is not compiled (LunarLander): the same loop on the host, step by step."""

from __future__ import annotations

import numpy as np

from fedrl.algorithms import qhd_kernels as kernels
from fedrl.algorithms.pg_tabular_kernels import uniform
from fedrl.algorithms.q_learning import host_episodes
from fedrl.algorithms.qhd_episodes import below, draw, pick, remember
from fedrl.envs.discrete import World


def run_episodes(
    world: World,
    count: int,
    blocks: kernels.Blocks,
    learner: kernels.Learner,
    rules: kernels.Rules,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """`count` episodes as `qhd_episodes.run_episodes` plays them; returns and lengths [count]."""
    actions, counters, epsilon = world.actions, learner.counters, learner.epsilon
    scratch = kernels.work(blocks.phase.shape[0], rules.batch, actions)
    q = np.empty(actions)

    def choose(seen: np.ndarray) -> int:
        if uniform(draw(counters)) < epsilon[0]:
            return int(below(draw(counters), np.uint64(actions)))
        kernels.act(blocks, learner.online, seen, 0, scratch.ahead[0], q)
        return int(np.argmax(q))

    def learn(
        state: np.ndarray, action: int, reward: float, ahead: np.ndarray, terminal: bool
    ) -> None:
        remember(learner, state, action, reward, ahead, terminal)
        counters[kernels.STEPS] += np.uint64(1)
        if counters[kernels.SIZE] >= rules.batch:
            for _ in range(rules.updates_per_step):
                pick(counters, scratch.picks)
                kernels.td_update(blocks, learner, scratch.picks, rules, scratch)
        if rules.sync_steps and counters[kernels.STEPS] % np.uint64(rules.sync_steps) == 0:
            learner.target[:] = learner.online

    def finish() -> None:
        counters[kernels.EPISODES] += np.uint64(1)
        period = np.uint64(rules.sync_episodes)
        if period and counters[kernels.EPISODES] % period == 0:
            learner.target[:] = learner.online
        epsilon[0] = max(rules.epsilon_floor, epsilon[0] * rules.epsilon_decay)

    return host_episodes(world, count, seed, choose, learn, finish)


def evaluate(
    world: World, count: int, blocks: kernels.Blocks, online: np.ndarray, seed: int
) -> np.ndarray:
    """Returns [count] of greedy episodes that teach nothing."""
    spectator = kernels.fresh(online.shape[0], 1, world.dimension, 1, seed % 2**63, epsilon=0.0)
    still = kernels.Rules(1.0, 0.0, 1, 0, 0, 0, 1.0, 0.0, world.limit)
    learner = spectator._replace(online=np.ascontiguousarray(online), target=online)
    return run_episodes(world, count, blocks, learner, still, seed)[0]
