"""The compiled learner against the same algorithm in plain NumPy and Python integers."""

from __future__ import annotations

import threading

import numpy as np
import pytest

pytest.importorskip("numba", reason="the kernels are compiled by numba (fedrl[classic])")

from fedrl.algorithms.qhd import encoders as qhd
from fedrl.algorithms.qhd import episodes as loop
from fedrl.algorithms.qhd import q_learning_kernels as q_learner
from fedrl.algorithms.qhd import td_kernels as kernels
from fedrl.envs.discrete import classic_kernels as worlds
from fedrl.envs.discrete import worlds as discrete

RULES = q_learner.Rules(
    gamma=0.97,
    lr=0.2,
    batch=8,
    gradient_steps=1,
    sync_steps=0,
    sync_episodes=2,
    epsilon_decay=0.9,
    epsilon_floor=0.05,
    limit=0,
)
SCALES = {
    worlds.CARTPOLE: ((0, 0, 0, 0), (2.4, 3, 0.21, 3)),
    worlds.ACROBOT: ((0,) * 6, (1, 1, 1, 1, 3, 6)),
    worlds.MOUNTAINCAR: ((-0.3, 0), (0.9, 0.07)),
}


def scales(kind: int):
    return tuple(np.array(x, np.float32) for x in SCALES[kind])


def filled(encoder: qhd.Encoder, actions: int, capacity: int = 60, seed: int = 0):
    """A learner with weights, a full replay of random transitions, and its encoder's blocks."""
    lanes, rng = qhd.lanes(encoder), np.random.default_rng(seed)
    size = encoder.omega.shape[0]
    learner = kernels.fresh(actions, lanes.phase.size, size, capacity, seed=seed + 1)
    learner.online[:] = rng.normal(size=learner.online.shape)
    learner.target[:] = rng.normal(size=learner.target.shape)
    learner.states[:] = rng.normal(size=learner.states.shape)
    learner.nexts[:] = rng.normal(size=learner.states.shape)
    learner.actions[:] = rng.integers(actions, size=capacity)
    learner.rewards[:] = rng.normal(size=capacity)
    learner.terminal[:] = rng.random(capacity) < 0.2
    learner.counters[q_learner.SIZE] = capacity
    return learner, kernels.blocks(lanes)


class Oracle:
    """FedQHD's local update as the paper writes it: complex where the encoder is, float64."""

    def __init__(self, encoder: qhd.Encoder, learner: kernels.Learner) -> None:
        self.encoder, self.replay = encoder, learner
        self.online = qhd.unpack(encoder, learner.online).astype(complex)
        self.target = qhd.unpack(encoder, learner.target).astype(complex)

    def update(self, picks, rules: q_learner.Rules) -> None:
        replay = self.replay
        here = qhd.features(self.encoder, replay.states[picks])
        ahead = qhd.features(self.encoder, replay.nexts[picks])
        chooser = self.online if rules.double else self.target
        best = np.real(ahead.conj() @ chooser).argmax(1)
        delayed = np.real(ahead.conj() @ self.target)[np.arange(len(picks)), best]
        goal = replay.rewards[picks] + rules.gamma * delayed * ~replay.terminal[picks]
        actions = replay.actions[picks]
        error = goal - np.real(here.conj() @ self.online)[np.arange(len(picks)), actions]
        if rules.huber:
            error = np.clip(error, -rules.huber, rules.huber)
        gradient = np.zeros_like(self.online)
        for delta, action, phi in zip(error, actions, here):
            gradient[:, action] += delta * phi
        if rules.max_grad_norm:
            gradient *= min(1, rules.max_grad_norm / np.linalg.norm(gradient))
        self.online += rules.lr * gradient


def splitmix(seed: int, position: int) -> int:
    def mix(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    return mix((mix(seed) + position * 0x9E3779B97F4A7C15) % 2**64)


def test_the_cosine_is_exact_to_a_millionth():
    turns = np.linspace(-40, 40, 2_000_001).astype(np.float32)
    out = np.empty_like(turns)
    still = np.zeros((1, turns.size), np.float32)
    kernels.encode_one(still, turns, (np.float32(0),), turns.size, out)
    exact = np.cos(2 * np.pi * turns.astype(np.float64))
    assert np.abs(out - exact).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize(
    "size, features, actions, batch",
    [(4, 1000, 2, 16), (2, 512, 3, 7), (6, 130, 3, 1), (8, 700, 4, 5), (1, 3, 1, 4)],
)
def test_updates_follow_the_oracle(complex, size, features, actions, batch):
    encoder = qhd.draw(size, features, 0.8, seed=3, complex=complex)
    learner, blocks = filled(encoder, actions)
    oracle = Oracle(encoder, learner)
    rules = RULES._replace(batch=batch)
    work = kernels.work(len(blocks.phase), batch, actions)
    position = 0
    for round in range(300):
        q_learner.pick(learner.counters, work.picks)
        drawn = [splitmix(1, position + 1 + b) for b in range(batch)]
        position += batch
        assert list(work.picks) == [(word >> 32) * 60 >> 32 for word in drawn]
        kernels.td_update(blocks, learner, work.picks, rules, work)
        oracle.update(work.picks.copy(), rules)
        if round % 40 == 39:
            learner.target[:] = learner.online
            oracle.target = oracle.online.copy()
    weights = oracle.online if complex else oracle.online.real
    assert np.abs(weights - qhd.unpack(encoder, filled(encoder, actions)[0].online)).max() > 0.02
    np.testing.assert_allclose(qhd.unpack(encoder, learner.online), weights, atol=1e-5, rtol=0)
    assert learner.counters[q_learner.UPDATES] == 300


@pytest.mark.slow
@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize(
    "change",
    [{"double": False}, {"huber": 0.4}, {"max_grad_norm": 0.7}],
    ids=lambda c: next(iter(c)),
)
def test_other_rules_follow_the_oracle_too(complex, change):
    """And each moves the weights elsewhere than the usual rules do."""
    encoder = qhd.draw(4, 1000, 0.8, seed=3, complex=complex)
    found = []
    for rules in (RULES._replace(**change), RULES):
        learner, blocks = filled(encoder, 3)
        oracle, work = Oracle(encoder, learner), kernels.work(len(blocks.phase), 8, 3)
        for _ in range(50):
            q_learner.pick(learner.counters, work.picks)
            kernels.td_update(blocks, learner, work.picks, rules, work)
            oracle.update(work.picks.copy(), rules)
        weights = oracle.online if complex else oracle.online.real
        np.testing.assert_allclose(qhd.unpack(encoder, learner.online), weights, atol=1e-5, rtol=0)
        found.append(learner.online)
    assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.parametrize("complex", [False, True])
def test_act_reads_the_values_of_a_state(complex):
    encoder = qhd.draw(4, 600, 0.8, seed=3, complex=complex)
    learner, blocks = filled(encoder, 3)
    weights, out = qhd.unpack(encoder, learner.online), np.empty(3)
    for row in range(5):
        kernels.act(blocks, learner.online, learner.states, row, np.empty(kernels.BLOCK, "f4"), out)
        expected = qhd.values(encoder, weights, learner.states[row : row + 1])[0]
        np.testing.assert_allclose(out, expected, atol=1e-5)


def test_a_repeated_transition_counts_fully_unlike_in_sequential_updates():
    encoder = qhd.draw(4, 50, 0.8, seed=3)
    once, blocks = filled(encoder, 2)
    twice, _ = filled(encoder, 2)
    before = once.online.copy()
    kernels.td_update(blocks, once, np.array([4]), RULES, kernels.work(1, 1, 2))
    kernels.td_update(blocks, twice, np.array([4, 4]), RULES, kernels.work(1, 2, 2))
    np.testing.assert_allclose(twice.online - before, 2 * (once.online - before), atol=1e-6)


def test_only_the_target_of_a_terminal_transition_ignores_the_future():
    encoder = qhd.draw(4, 50, 0.8, seed=3)
    for terminal in (True, False):
        moves = []
        for future in (0.0, 5.0):
            learner, blocks = filled(encoder, 2)
            learner.terminal[3] = terminal
            learner.target[:] = future
            before = learner.online.copy()
            kernels.td_update(blocks, learner, np.array([3]), RULES, kernels.work(1, 1, 2))
            moves.append(learner.online - before)
        assert np.array_equal(*moves) is terminal


def test_weights_that_diverged_stay_visible():
    encoder = qhd.draw(4, 50, 0.8, seed=3)
    learner, blocks = filled(encoder, 2)
    learner.online[0, 3] = np.nan
    out = np.empty(2)
    kernels.act(blocks, learner.online, learner.states, 0, np.empty(kernels.BLOCK, "f4"), out)
    assert np.isnan(out[0])
    assert np.isfinite(out[1])


@pytest.mark.slow
def test_the_replay_is_a_ring():
    learner = kernels.fresh(2, 5, 1, 3, seed=0)
    one = np.zeros(1, np.float32)
    for i in range(5):
        q_learner.remember(learner, one + i, i % 2, float(i), one - i, i == 4)
    np.testing.assert_array_equal(learner.rewards, [3, 4, 2])
    np.testing.assert_array_equal(learner.states[:, 0], [3, 4, 2])
    np.testing.assert_array_equal(learner.nexts[:, 0], [-3, -4, -2])
    np.testing.assert_array_equal(learner.actions, [1, 0, 0])
    np.testing.assert_array_equal(learner.terminal, [False, True, False])
    assert learner.counters[q_learner.SIZE] == 3
    assert learner.counters[q_learner.HEAD] == 2


def test_minibatches_are_uniform_over_what_the_replay_holds():
    counters = np.zeros(q_learner.COUNTERS, np.uint64)
    counters[q_learner.SEED], counters[q_learner.SIZE] = 9, 7
    picks = np.empty(70_000, np.int64)
    q_learner.pick(counters, picks)
    share = np.bincount(picks, minlength=7) / len(picks)
    assert len(share) == 7
    np.testing.assert_allclose(share, 1 / 7, atol=0.006)  # 4.5 standard deviations


def make(kind: int, features: int = 60, capacity: int = 200, seed: int = 5):
    encoder = qhd.draw(worlds.OBSERVATION[kind], features, 0.5, seed=1)
    lanes = qhd.lanes(encoder)
    size = worlds.OBSERVATION[kind]
    learner = kernels.fresh(worlds.ACTIONS[kind], features, size, capacity, seed)
    return learner, kernels.blocks(lanes)


def by_hand(kind, count, blocks, shift, spread, learner, rules):
    """The loop of episodes, step by step from Python."""
    actions = learner.online.shape[0]
    work = kernels.work(len(blocks.phase), rules.batch, actions)
    position, returns, lengths = 0, [], []
    seed, counters = int(learner.counters[q_learner.SEED]), learner.counters
    assert counters[q_learner.DRAWS] == 0

    def word() -> int:
        nonlocal position
        position += 1
        return splitmix(seed, position)

    def look(state):
        seen = np.empty(len(shift), np.float32)
        worlds.observe(kind, state, seen)
        return (seen - shift) / spread

    for _ in range(count):
        state = np.empty(worlds.MOST_STATE)
        uniforms = np.array([(word() >> 11) * 2.0**-53 for _ in range(worlds.DRAWS[kind])])
        worlds.reset(kind, state, uniforms)
        total, length, over, seen = 0.0, 0, False, look(state)
        while not over and length < (rules.limit or worlds.LIMIT[kind]):
            steps = int(counters[q_learner.STEPS])
            if rules.epsilon_steps and steps >= rules.learning_starts:
                fall = (rules.epsilon - rules.epsilon_floor) * steps / rules.epsilon_steps
                learner.epsilon[0] = max(rules.epsilon_floor, rules.epsilon - fall)
            chance = learner.epsilon[0] if steps >= rules.learning_starts else 1
            if (word() >> 11) * 2.0**-53 < chance:
                action = (word() >> 32) * actions >> 32
            else:
                q = np.empty(actions)
                kernels.act(blocks, learner.online, seen[None], 0, np.empty(512, "f4"), q)
                action = int(q.argmax())
            reward, over = worlds.step(kind, state, action)
            ahead = look(state)
            q_learner.remember(learner, seen, action, reward, ahead, over)
            seen, total, length = ahead, total + reward, length + 1
            counters[q_learner.STEPS] += np.uint64(1)
            learns = counters[q_learner.SIZE] >= rules.batch and steps >= rules.learning_starts
            due = learns and (steps + 1) % rules.train_every == 0
            for _ in range(rules.gradient_steps * int(due)):
                held = int(counters[q_learner.SIZE])
                picks = np.array([(word() >> 32) * held >> 32 for _ in range(rules.batch)])
                kernels.td_update(blocks, learner, picks, rules, work)
            if rules.sync_steps and counters[q_learner.STEPS] % rules.sync_steps == 0:
                learner.target[:] = learner.online
        counters[q_learner.EPISODES] += np.uint64(1)
        if rules.sync_episodes and counters[q_learner.EPISODES] % rules.sync_episodes == 0:
            learner.target[:] = learner.online
        if not rules.epsilon_steps:
            learner.epsilon[0] = max(rules.epsilon_floor, learner.epsilon[0] * rules.epsilon_decay)
        returns.append(total)
        lengths.append(length)
    counters[q_learner.DRAWS] = position
    return np.array(returns), np.array(lengths)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, rules",
    [
        (worlds.CARTPOLE, RULES),
        (worlds.ACROBOT, RULES._replace(limit=40, sync_steps=25, sync_episodes=0)),
        (worlds.MOUNTAINCAR, RULES._replace(limit=50, gradient_steps=2, batch=3)),
        (worlds.MOUNTAINCAR, RULES._replace(limit=40, train_every=16, gradient_steps=8)),
        (worlds.MOUNTAINCAR, RULES._replace(limit=40, learning_starts=50, train_every=3)),
        (worlds.CARTPOLE, RULES._replace(epsilon_steps=60, learning_starts=20, epsilon=0.8)),
    ],
    ids=["cartpole", "acrobot", "mountaincar", "every 16", "from 50", "linear ε"],
)
def test_episodes_are_what_the_steps_by_hand_give(kind, rules):
    compiled, blocks = make(kind)
    stepped, _ = make(kind)
    shift, spread = scales(kind)
    returns, lengths = loop.compiled_episodes(kind, 5, blocks, shift, spread, compiled, rules)
    expected = by_hand(kind, 5, blocks, shift, spread, stepped, rules)
    np.testing.assert_array_equal(returns, expected[0])
    np.testing.assert_array_equal(lengths, expected[1])
    for name, array in compiled._asdict().items():
        if name != "epsilon":
            np.testing.assert_array_equal(array, getattr(stepped, name), err_msg=name)
    assert np.abs(compiled.online).max() > 0
    assert compiled.epsilon[0] == pytest.approx(stepped.epsilon[0], rel=1e-15)
    if not rules.epsilon_steps:
        assert compiled.epsilon[0] == pytest.approx(max(0.05, 0.9**5))


def test_a_cut_at_the_limit_is_not_terminal():
    learner, blocks = make(worlds.MOUNTAINCAR)
    rules = RULES._replace(limit=10)
    _, lengths = loop.compiled_episodes(worlds.MOUNTAINCAR, 4, blocks, *scales(2), learner, rules)
    np.testing.assert_array_equal(lengths, 10)
    assert not learner.terminal.any()
    learner, blocks = make(worlds.CARTPOLE, capacity=500)
    rules = RULES._replace(gradient_steps=0)
    _, lengths = loop.compiled_episodes(worlds.CARTPOLE, 4, blocks, *scales(0), learner, rules)
    assert lengths.sum() < 500
    np.testing.assert_array_equal(np.flatnonzero(learner.terminal), lengths.cumsum() - 1)


def test_a_saved_client_resumes_to_the_bit():
    whole, blocks = make(worlds.CARTPOLE)
    part, _ = make(worlds.CARTPOLE)
    args = (blocks, *scales(worlds.CARTPOLE))
    loop.compiled_episodes(worlds.CARTPOLE, 7, *args, whole, RULES)
    loop.compiled_episodes(worlds.CARTPOLE, 3, *args, part, RULES)
    saved = {name: array.copy() for name, array in part._asdict().items()}
    resumed = kernels.Learner(**saved)
    loop.compiled_episodes(worlds.CARTPOLE, 4, *args, resumed, RULES)
    for name, array in whole._asdict().items():
        np.testing.assert_array_equal(array, getattr(resumed, name), err_msg=name)
    assert not np.array_equal(part.online, resumed.online)


def test_clients_in_threads_do_not_disturb_each_other():
    alone = [make(worlds.CARTPOLE, features, seed=features) for features in (60, 200, 700)]
    beside = [make(worlds.CARTPOLE, features, seed=features) for features in (60, 200, 700)]

    def work(learner, blocks):
        loop.compiled_episodes(worlds.CARTPOLE, 4, blocks, *scales(0), learner, RULES)

    for client in alone:
        work(*client)
    threads = [threading.Thread(target=work, args=client) for client in beside]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (one, _), (other, _) in zip(alone, beside):
        np.testing.assert_array_equal(one.online, other.online)


def test_evaluation_is_greedy_repeatable_and_changes_nothing():
    learner, blocks = make(worlds.CARTPOLE)
    shift, scale = SCALES[worlds.CARTPOLE]
    settings = discrete.Settings("cartpole-v1", shift=tuple(shift), scale=tuple(scale))
    world = discrete.World(settings, 1, 0)
    # push towards the side that the pole falls to: Q(right) - Q(left) grows with the angle
    encoder = qhd.draw(4, 60, 0.5, seed=1)
    states = np.random.default_rng(0).uniform(-1, 1, size=(400, 4))
    rows = qhd.design(encoder, states)
    lean = states[:, 2] + 0.5 * states[:, 3]
    learner.online[1] = np.linalg.lstsq(rows, lean)[0]
    before = learner.online.copy()

    def play(seed):
        return loop.evaluate(world, 10, blocks, learner.online, seed)

    returns = play(3)
    np.testing.assert_array_equal(learner.online, before)
    learner.online[1] *= -1
    poor = play(3)
    assert returns.mean() > 200 > 15 > poor.mean()
    np.testing.assert_array_equal(poor, play(3))
    assert not np.array_equal(poor, play(4))


@pytest.mark.slow
def test_a_client_learns_cartpole():
    encoder = qhd.draw(4, 1000, 0.5, seed=0)
    blocks, learner = kernels.blocks(qhd.lanes(encoder)), kernels.fresh(2, 1000, 4, 10_000, 7)
    rules = q_learner.Rules(0.99, 0.1, 16, 1, 0, 5, 0.985, 0.001, 0)
    args = (blocks, *scales(worlds.CARTPOLE), learner, rules)
    first, _ = loop.compiled_episodes(worlds.CARTPOLE, 20, *args)
    loop.compiled_episodes(worlds.CARTPOLE, 230, *args)
    last, _ = loop.compiled_episodes(worlds.CARTPOLE, 50, *args)
    assert first.mean() < 40
    assert last.mean() > 200
