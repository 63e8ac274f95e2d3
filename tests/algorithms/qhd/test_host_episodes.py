"""The loop around a host's world: the very numbers of the compiled loop, for QHD and for DQN.

A compiled world in a host's place draws its starts from the learner's own random numbers, as the
compiled loop does, so the two can be compared to the last bit.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba", reason="the kernels are compiled by numba (fedrl[classic])")

from support.discrete_worlds import EACH

from fedrl.algorithms.qhd import encoders as qhd
from fedrl.algorithms.qhd import episodes as qhd_episodes
from fedrl.algorithms.qhd import q_learning_kernels as q_learner
from fedrl.algorithms.qhd import td_kernels as kernels
from fedrl.algorithms.qhd.dqn import episodes as dqn_episodes
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.fedqhd import FedQHD, Settings
from fedrl.core.types import Job
from fedrl.envs.discrete import classic_kernels as classic
from fedrl.envs.discrete import worlds as discrete

KIND, LIMIT = classic.CARTPOLE, 15
"""Some of its episodes end before the limit, some are cut."""

QHD = q_learner.Rules(0.97, 0.2, 8, 1, 0, 2, 0.9, 0.05, LIMIT)
DQN = q_learner.Rules(0.97, 0.01, 8, 1, 0, 2, 0.9, 0.05, LIMIT, huber=1.0)


class InAHostsPlace:
    """A compiled world that steps as `Lunar` does and starts from `counters`' random numbers."""

    def __init__(self, kind: int, limit: int, counters: np.ndarray) -> None:
        self.kind, self.limit, self.counters = kind, limit, counters
        self.state, self.steps = np.empty(classic.MOST_STATE), 0

    def reset(self, seeds: list[int]) -> np.ndarray:
        return self.restart(np.zeros(1, np.int64))

    def restart(self, rows: np.ndarray) -> np.ndarray:
        words = [int(q_learner.draw(self.counters)) for _ in range(classic.DRAWS[self.kind])]
        classic.reset(self.kind, self.state, np.array([(word >> 11) * 2.0**-53 for word in words]))
        self.steps = 0
        return self.look()[None]

    def look(self) -> np.ndarray:
        seen = np.empty(classic.OBSERVATION[self.kind], np.float32)
        classic.observe(self.kind, self.state, seen)
        return seen

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        assert isinstance(action, int)
        reward, terminated = classic.step(self.kind, self.state, action)
        self.steps += 1
        return self.look(), reward, terminated, self.steps >= self.limit


def both(counters: np.ndarray):
    """CartPole compiled, and what stands for it as a host's world."""
    world = discrete.World(discrete.Settings("cartpole-v1"), 1, 0)
    host = SimpleNamespace(
        dimension=world.dimension, actions=world.actions, scaling=world.scaling, kernel=None,
        own=(0,),
        simulator=lambda pools: InAHostsPlace(KIND, LIMIT, counters),
    )  # fmt: skip
    return world, host


def assert_equal(one, other) -> None:
    assert one[2].counters[q_learner.STEPS] > 60
    for mine, its in zip(one[:2], other[:2], strict=True):
        np.testing.assert_array_equal(mine, its)
    for name, array in one[2]._asdict().items():
        np.testing.assert_array_equal(array, getattr(other[2], name), err_msg=name)


CHANGES = pytest.mark.parametrize(
    "change",
    [
        {},
        {"sync_steps": 25, "sync_episodes": 0},
        {"gradient_steps": 2, "batch": 3},
        {"gradient_steps": 0},
        {"train_every": 4, "gradient_steps": 3, "learning_starts": 20},
        {"epsilon_steps": 50, "epsilon": 0.9, "max_grad_norm": 0.1, "double": False},
    ],
    ids=["usual", "sync by steps", "two updates", "no update", "every 4", "linear ε"],
)


@pytest.mark.slow
@CHANGES
def test_qhd_around_a_host_is_the_compiled_loop(change):
    rules = QHD._replace(**change)
    encoder = qhd.draw(classic.OBSERVATION[KIND], 600, 0.5, seed=1)
    blocks, found = kernels.blocks(qhd.lanes(encoder)), []
    for hosted in (False, True):
        learner = kernels.fresh(classic.ACTIONS[KIND], 600, classic.OBSERVATION[KIND], 200, 5)
        world, host = both(learner.counters)
        scaling = [part.astype(np.float32) for part in world.scaling]
        for count in (5, 3):  # the second call goes on where the first one ended
            returns, lengths = (
                qhd_episodes.run_episodes(host, count, blocks, learner, rules, 0)
                if hosted
                else qhd_episodes.compiled_episodes(KIND, count, blocks, *scaling, learner, rules)
            )
        found.append((returns, lengths, learner))
    assert_equal(*found)
    assert bool(np.abs(learner.online).max() > 0) == (rules.gradient_steps > 0)


@CHANGES
def test_dqn_around_a_host_is_the_compiled_loop(change):
    rules, found = DQN._replace(**change), []
    shape = (classic.OBSERVATION[KIND], 12, 10, classic.ACTIONS[KIND])
    for hosted in (False, True):
        learner = dqn.fresh(shape, dqn.draw_weights(shape, 1), 200, 5)
        worlds = both(learner.counters)
        for count in (5, 3):
            returns, lengths = dqn_episodes.run_episodes(
                worlds[hosted], count, shape, learner, rules, 0
            )
        found.append((returns, lengths, learner))
    assert_equal(*found)
    assert np.array_equal(learner.online, dqn.draw_weights(shape, 1)) == (not rules.gradient_steps)


class ByHand:
    """One lander's episodes, step by step from Python through `Lunar.step`."""

    def __init__(self, world: discrete.World, learner, choose, learn) -> None:
        self.world, self.learner, self.choose, self.learn = world, learner, choose, learn
        self.position, self.seed = 0, int(learner.counters[q_learner.SEED])

    def word(self) -> int:
        self.position += 1
        numbers = np.zeros(q_learner.COUNTERS, np.uint64)
        numbers[q_learner.SEED], numbers[q_learner.DRAWS] = self.seed, self.position - 1
        return int(q_learner.draw(numbers))

    def episodes(self, count: int, rules, seed: int) -> tuple[list[float], list[int]]:
        returns, lengths, counters = [], [], self.learner.counters
        lander = self.world.simulator([[0]])
        start = lander.reset([seed])[0]
        for episode in range(count):
            if episode:
                start = lander.restart(np.zeros(1, np.int64))[0]
            seen, total, length, over = self.scaled(start), 0.0, 0, False
            while not over:
                if (self.word() >> 11) * 2.0**-53 < self.learner.epsilon[0]:
                    action = (self.word() >> 32) * self.world.actions >> 32
                else:
                    action = self.choose(seen[None])
                after = lander.step(np.array([action]))
                over = after.terminated[0] or after.truncated[0]
                ahead = self.scaled(after.observations[0])
                q_learner.remember(
                    self.learner, seen, action, after.rewards[0], ahead, bool(after.terminated[0])
                )
                counters[q_learner.STEPS] += np.uint64(1)
                held = int(counters[q_learner.SIZE])
                for _ in range(rules.gradient_steps * (held >= rules.batch)):
                    picks = [(self.word() >> 32) * held >> 32 for _ in range(rules.batch)]
                    self.learn(np.array(picks))
                if rules.sync_steps and counters[q_learner.STEPS] % rules.sync_steps == 0:
                    self.learner.target[:] = self.learner.online
                seen, total, length = ahead, total + after.rewards[0], length + 1
            counters[q_learner.EPISODES] += np.uint64(1)
            self.learner.epsilon[0] *= rules.epsilon_decay
            returns.append(total)
            lengths.append(length)
        counters[q_learner.DRAWS] = self.position
        return returns, lengths

    def scaled(self, observation: np.ndarray) -> np.ndarray:
        shift, spread = (part.astype(np.float32) for part in self.world.scaling)
        return (observation - shift) / spread


def lunar(simulator: str) -> discrete.World:
    settings = discrete.Settings("lunarlander-v3", scale=(0.7,) * 8, simulator=simulator)
    return discrete.World(settings, 1, 0)


@pytest.mark.slow
@EACH
def test_qhd_lands_as_by_hand(simulator):
    world, rules = lunar(simulator), QHD._replace(sync_steps=50, sync_episodes=0)
    blocks = kernels.blocks(qhd.lanes(qhd.draw(8, 600, 2.0, seed=1)))
    fused, stepped = (kernels.fresh(4, 600, 8, 150, 5) for _ in range(2))
    work, q = kernels.work(len(blocks.phase), rules.batch, 4), np.empty(4)

    def choose(seen: np.ndarray) -> int:
        kernels.act(blocks, stepped.online, seen, 0, np.empty(kernels.BLOCK, np.float32), q)
        return int(q.argmax())

    def learn(picks: np.ndarray) -> None:
        kernels.td_update(blocks, stepped, picks, rules, work)

    returns, lengths = qhd_episodes.run_episodes(world, 6, blocks, fused, rules, 3)
    expected = ByHand(world, stepped, choose, learn).episodes(6, rules, 3)
    assert_equal((*expected_arrays(expected), stepped), (returns, lengths, fused))


@pytest.mark.slow
@EACH
def test_dqn_lands_as_by_hand(simulator):
    world, rules = lunar(simulator), DQN._replace(sync_steps=50, sync_episodes=0)
    shape = (8, 12, 10, 4)
    fused, stepped = (dqn.fresh(shape, dqn.draw_weights(shape, 1), 150, 5) for _ in range(2))
    work = dqn.work(shape, rules.batch)

    def choose(seen: np.ndarray) -> int:
        h1, h2, q = (np.empty((1, units), np.float32) for units in shape[1:])
        dqn.values(stepped.online, shape, seen, h1, h2, q)
        return int(q.argmax())

    def learn(picks: np.ndarray) -> None:
        work.picks[:] = picks
        dqn.td_update(stepped, shape, rules, work)

    returns, lengths = dqn_episodes.run_episodes(world, 6, shape, fused, rules, 3)
    expected = ByHand(world, stepped, choose, learn).episodes(6, rules, 3)
    assert_equal((*expected_arrays(expected), stepped), (returns, lengths, fused))


def expected_arrays(found: tuple[list[float], list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(found[0]), np.array(found[1])


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("encoders", ["shared", "own"])
def test_a_round_of_landings(simulator, encoders):
    world = lunar(simulator)
    settings = Settings(
        encoders=encoders, features=600, sizes=(600, 300), episodes=2, anchors=20, eval_episodes=2
    )
    algorithm = FedQHD(settings, world, [[0]])
    first = algorithm.local(Job(0, algorithm.init(5), None, 1))
    again = algorithm.local(Job(0, algorithm.init(5), None, 1))
    assert first.state["counters"][q_learner.UPDATES] > 50
    for name, array in first.state.items():
        np.testing.assert_array_equal(array, again.state[name], err_msg=name)
    server = algorithm.step(algorithm.init(5), first.update, 1)
    found = [algorithm.evaluate([server], [[0]], 1, seed)["eval/return"] for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
@EACH
def test_greedy_landings_teach_nothing_and_can_be_repeated(simulator):
    world = lunar(simulator)
    blocks = kernels.blocks(qhd.lanes(qhd.draw(8, 600, 2.0, seed=1)))
    rows = np.random.default_rng(0).normal(size=(4, 600)).astype(np.float32)
    before = rows.copy()
    found = [qhd_episodes.evaluate(world, 3, blocks, rows, seed) for seed in (7, 7, 2**62 + 8)]
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
