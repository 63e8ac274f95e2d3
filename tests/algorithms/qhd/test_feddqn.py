"""The DQN baselines: gradients and targets of the learner, averaging, distillation, restarts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="DQN needs the extra classic")

from support.discrete_worlds import EACH

from fedrl.algorithms.qhd import q_learning_kernels as counters
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.distillation import Distillation
from fedrl.algorithms.qhd.dqn.distillation import Settings as DistillSettings
from fedrl.algorithms.qhd.dqn.episodes import run_episodes
from fedrl.algorithms.qhd.dqn.feddqn import FedDQN, Settings
from fedrl.algorithms.qhd.q_learning_kernels import Rules
from fedrl.core.types import Job, UserError
from fedrl.envs.discrete.worlds import Settings as WorldSettings
from fedrl.envs.discrete.worlds import World

SHAPE = (3, 13, 10, 4)
RULES = Rules(0.9, 0.01, 5, 1, 0, 5, 0.9, 0.1, 500)
SMALL = {"hidden": (16, 16), "episodes": 3, "batch": 8, "replay": 500, "eval_episodes": 2}


def filled(double: bool = True, huber: float = 0.0) -> tuple[dqn.Learner, Rules, dqn.Work]:
    """A learner with other delayed weights and a replay of noise, every third place terminal."""
    random = np.random.default_rng(3)
    learner = dqn.fresh(SHAPE, dqn.draw_weights(SHAPE, 1), 9, 7)
    learner.target[:] = dqn.draw_weights(SHAPE, 2)
    learner.states[:] = random.normal(size=(9, 3))
    learner.nexts[:] = random.normal(size=(9, 3))
    learner.rewards[:] = random.normal(size=9)
    learner.actions[:] = random.integers(4, size=9)
    learner.terminal[::3] = True
    work = dqn.work(SHAPE, 5)
    work.picks[:] = [0, 4, 8, 4, 3]
    return learner, RULES._replace(double=double, huber=huber), work


def q_values(weights, x):
    """The network in float64, from the formula."""
    w1, b1, w2, b2, w3, b3 = (part.astype(np.float64) for part in dqn.layers(weights, SHAPE))
    h1 = np.maximum(x @ w1 + b1, 0)
    return np.maximum(h1 @ w2 + b2, 0) @ w3.T + b3


@pytest.mark.slow
@pytest.mark.parametrize("huber", [0.0, 0.3])
@pytest.mark.parametrize("double", [True, False])
def test_the_gradient_is_that_of_autodiff(double, huber):
    jax = pytest.importorskip("jax", reason="autodiff is the oracle")
    learner, rules, work = filled(double, huber)
    p = work.picks

    def network(weights, x):
        sizes = [(3, 13), (13,), (13, 10), (10,), (4, 10), (4,)]
        parts, start = [], 0
        for size in sizes:
            count = int(np.prod(size))
            parts.append(weights[start : start + count].reshape(size))
            start += count
        w1, b1, w2, b2, w3, b3 = parts
        return jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2) @ w3.T + b3

    def loss(weights):
        ahead, delayed = (network(w, learner.nexts[p]) for w in (weights, learner.target))
        chosen = (ahead if double else delayed).argmax(1)
        goal = learner.rewards[p] + 0.9 * ~learner.terminal[p] * delayed[np.arange(5), chosen]
        error = network(weights, learner.states[p])[np.arange(5), learner.actions[p]] - goal
        size = jax.numpy.abs(error)
        squared = error**2 / 2
        bent = jax.numpy.where(size > huber, huber * (size - huber / 2), squared)
        return (bent if huber else squared).mean()

    wanted = np.asarray(jax.grad(loss)(jax.numpy.array(learner.online)))
    dqn.td_slopes(learner, SHAPE, rules, work)
    dqn.backward(learner.online, SHAPE, work)
    np.testing.assert_allclose(work.gradient, wanted, atol=2e-7, rtol=2e-5)
    assert np.abs(wanted).max() > 0.01


@pytest.mark.parametrize("double", [True, False])
def test_targets_by_hand(double):
    """Double: the online weights choose, the delayed ones value. Terminal: the reward alone."""
    learner, rules, work = filled(double)
    dqn.td_slopes(learner, SHAPE, rules, work)
    for b, row in enumerate(work.picks):
        chooser = learner.online if double else learner.target
        chosen = q_values(chooser, learner.nexts[row]).argmax()
        worth = q_values(learner.target, learner.nexts[row])[chosen]
        goal = learner.rewards[row] + (0 if row % 3 == 0 else 0.9 * worth)
        action = learner.actions[row]
        error = q_values(learner.online, learner.states[row])[action] - goal
        assert work.dq[b, action] == pytest.approx(error / 5, abs=1e-6)
        assert np.count_nonzero(work.dq[b]) == 1


def test_the_two_rules_differ_here():
    """Else the test above could not tell them apart."""
    slopes = []
    for double in (True, False):
        learner, rules, work = filled(double)
        dqn.td_slopes(learner, SHAPE, rules, work)
        slopes.append(work.dq.copy())
    assert np.abs(slopes[0] - slopes[1]).max() > 1e-3


def test_adam_is_adam():
    random = np.random.default_rng(0)
    weights = random.normal(size=50).astype(np.float32)
    first, second = np.zeros(50, np.float32), np.zeros(50, np.float32)
    w, m, v = weights.astype(np.float64), np.zeros(50), np.zeros(50)
    for t in range(1, 6):
        g = random.normal(size=50).astype(np.float32)
        dqn.adam(weights, g, first, second, 0.01, float(t))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g.astype(np.float64) ** 2
        w -= 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(weights, w, atol=1e-5)


def test_a_diverged_network_says_so():
    weights = dqn.draw_weights(SHAPE, 1)
    dqn.layers(weights, SHAPE)[0][:] = np.nan
    h1, h2 = np.empty((1, 13), np.float32), np.empty((1, 10), np.float32)
    q = np.empty((1, 4), np.float32)
    dqn.values(weights, SHAPE, np.ones((1, 3), np.float32), h1, h2, q)
    assert np.isnan(q).all()


def test_a_cut_episode_is_not_terminal():
    """MountainCar's random episodes are cut; CartPole's end, each with one terminal transition."""
    for name, ends in (("mountaincar-v0", 0), ("cartpole-v1", 3)):
        world = World(WorldSettings(name), 1, 0)
        shape = (world.dimension, 4, 4, world.actions)
        learner = dqn.fresh(shape, dqn.draw_weights(shape, 0), 1000, 5)
        still = RULES._replace(gradient_steps=0, epsilon_floor=1.0, limit=world.limit)
        _, lengths = run_episodes(world, 3, shape, learner, still, 0)
        assert learner.terminal.sum() == ends
        assert learner.counters[counters.SIZE] == lengths.sum()
        if not ends:
            assert lengths.tolist() == [200] * 3


def method(clients: int = 3, **settings) -> FedDQN:
    world = World(WorldSettings("cartpole-v1"), clients, 0)
    return FedDQN(Settings(**(SMALL | settings)), world, [[c] for c in range(clients)])


def distillation(clients: int = 3, **settings) -> Distillation:
    world = World(WorldSettings("cartpole-v1"), clients, 0)
    wanted = DistillSettings(**(SMALL | {"anchors": 40, "sizes": (8, 16, 32)} | settings))
    return Distillation(wanted, world, [[c] for c in range(clients)])


MAKERS = pytest.mark.parametrize("make", [method, distillation])


def rounds(algorithm, count: int, clients: int = 3, start=None):
    """`count` rounds of plain averaging; `start` is (round, server's state, clients' states)."""
    done, state, kept = start or (0, algorithm.init(5), dict.fromkeys(range(clients)))
    for r in range(done + 1, done + count + 1):
        sent = algorithm.broadcast(state, r)
        jobs = [Job(c, sent, kept[c], 100 * r + c) for c in kept]
        results = algorithm.local_many(jobs)
        specs = algorithm.declare(sent)
        for result in results:
            assert {n: (a.shape, str(a.dtype)) for n, a in result.update.items()} == {
                n: (spec.shape, spec.dtype) for n, spec in specs.items()
            }
            assert set(result.metrics) <= algorithm.reports
        kept = {x.client: x.state for x in results}
        mean = {n: np.mean([x.update[n] for x in results], 0) for n in specs}
        state = algorithm.step(state, mean, r)
    return done + count, state, kept


@MAKERS
def test_rounds_train_and_evaluate(make):
    algorithm = make()
    _, state, kept = rounds(algorithm, 2)
    assert all(client["counters"][counters.UPDATES] > 0 for client in kept.values())
    assert algorithm.evaluate([state], [[0, 1, 2]], 2, 0)["eval/return"] >= 1
    assert algorithm.evaluate_clients(state, 0, 2).shape == (3,)


def test_the_server_averages_and_clients_start_from_it():
    algorithm = method()
    _, state, kept = rounds(algorithm, 1)
    mean = np.mean([client["online"] for client in kept.values()], 0)
    np.testing.assert_allclose(state["weights"], mean, rtol=1e-6)
    frozen = method(gradient_steps=0)
    result = frozen.local(Job(0, state, kept[0], 9))
    assert np.array_equal(result.update["weights"], state["weights"])
    assert np.array_equal(result.state["first"], kept[0]["first"])  # Adam's means stay the client's


@MAKERS
def test_alone_a_client_is_not_disturbed(make):
    """What comes back unchanged is no news: neither weights nor delayed weights move."""
    algorithm = make(clients=1, gradient_steps=1, sync_episodes=100)
    _, state, kept = rounds(algorithm, 2, clients=1)
    idle = make(clients=1, gradient_steps=0, sync_episodes=100)
    result = idle.local(Job(0, state, kept[0], 1))
    for name in ("online", "target"):
        assert np.array_equal(result.state[name], kept[0][name])
    assert not np.array_equal(kept[0]["online"], kept[0]["target"])


@MAKERS
def test_a_centralized_client_plays_for_all(make):
    algorithm = make(clients=3)
    algorithm.client_env_ids = [[0, 1, 2]]
    result = algorithm.local(Job(0, algorithm.init(5), None, 1))
    assert result.metrics["env/episodes"] == 9


@MAKERS
def test_resumed_equals_undisturbed(make):
    whole = rounds(make(), 3)
    half = rounds(make(), 1)
    resumed = rounds(make(), 2, start=half)
    for name in whole[1]:
        assert np.array_equal(whole[1][name], resumed[1][name]), name
    for client in whole[2]:
        for name, array in whole[2][client].items():
            assert np.array_equal(array, resumed[2][client][name]), name


@EACH
def test_a_round_of_landings(simulator):
    """A world on the host trains and evaluates as compiled ones do, repeatably."""
    world = World(WorldSettings("lunarlander-v3", simulator=simulator), 2, 0)
    algorithm = FedDQN(Settings(**SMALL), world, [[0], [1]])
    _, state, kept = rounds(algorithm, 2, clients=2)
    assert all(client["counters"][counters.UPDATES] > 100 for client in kept.values())
    assert np.array_equal(rounds(algorithm, 2, clients=2)[1]["weights"], state["weights"])
    found = [algorithm.evaluate([state], [[0, 1]], 2, seed)["eval/return"] for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def divergence(algorithm: Distillation, weights, client: int, sent) -> float:
    said = algorithm.predictions(weights, algorithm.shape(client), sent).astype(np.float64)
    teacher = sent["teacher"].astype(np.float64)
    return float((teacher * np.log(teacher / said)).sum(1).mean())


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_distillation_comes_closer_to_the_teacher(temperature):
    algorithm = distillation(temperature=temperature, distill_steps=50, distill_lr=0.01)
    sent = algorithm.init(5)
    better = 0.1 + 0.8 * (sent["anchors"][:, 2] > 0)  # push the way that the pole leans
    sent["teacher"] = np.stack([1 - better, better], 1).astype(np.float32)
    for client in range(3):
        weights = algorithm.initial_weights(client, sent)
        before = divergence(algorithm, weights, client, sent)
        algorithm.fit(weights, algorithm.shape(client), sent)
        assert divergence(algorithm, weights, client, sent) < 0.5 * before


@pytest.mark.slow
def test_the_gradient_of_a_distillation_is_that_of_autodiff():
    """Adam's first step is lr·sign(gradient), so it is compared by one that is tiny."""
    jax = pytest.importorskip("jax", reason="autodiff is the oracle")
    random = np.random.default_rng(1)
    x = random.normal(size=(6, 3)).astype(np.float32)
    teacher = random.dirichlet(np.ones(4), 6).astype(np.float32)
    weights = dqn.draw_weights(SHAPE, 1)
    moved = weights.copy()
    dqn.distill(moved, SHAPE, x, teacher, 1, 1e-3, 0.7)
    cuts = np.cumsum([39, 13, 130, 10, 40])

    def loss(vector):
        w1, b1, w2, b2, w3, b3 = jax.numpy.split(vector, cuts)
        h1 = jax.nn.relu(x @ w1.reshape(3, 13) + b1)
        h2 = jax.nn.relu(h1 @ w2.reshape(13, 10) + b2)
        log_p = jax.nn.log_softmax((h2 @ w3.reshape(4, 10).T + b3) / 0.7)
        return -(teacher * log_p).sum(1).mean()

    g = np.asarray(jax.grad(loss)(jax.numpy.array(weights)), np.float64)
    clear = np.abs(g) > 1e-5
    np.testing.assert_allclose((weights - moved)[clear], 1e-3 * np.sign(g[clear]), rtol=3e-3)
    assert not (weights - moved)[g == 0].any()
    assert clear.sum() > 100


def test_nothing_is_distilled_before_anybody_spoke():
    algorithm = distillation(gradient_steps=0)
    sent = algorithm.init(5)
    result = algorithm.local(Job(1, sent, None, 1))
    assert np.array_equal(result.state["online"], algorithm.initial_weights(1, sent))
    np.testing.assert_allclose(result.update["teacher"].sum(1), 1, atol=1e-6)


def test_predictions_are_all_that_goes_up():
    """m × |A| numbers of four bytes, whatever a client's network."""
    algorithm = distillation()
    sent = algorithm.init(5)
    results = algorithm.local_many([Job(c, sent, None, c) for c in range(3)])
    assert {tuple(x.update) for x in results} == {("teacher",)}
    assert [x.update["teacher"].nbytes for x in results] == [40 * 2 * 4] * 3
    assert len({x.state["online"].size for x in results}) == 3


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (Settings, {"hidden": (128,)}),
        (Settings, {"gamma": 1.5}),
        (DistillSettings, {"lr": 0.0}),
        (DistillSettings, {"temperature": 0.0}),
        (DistillSettings, {"sizes": (16, 0)}),
    ],
)
def test_mistakes_name_their_key(settings, wrong):
    with pytest.raises(UserError, match=f"algorithm.{next(iter(wrong))} is"):
        settings(**wrong)
