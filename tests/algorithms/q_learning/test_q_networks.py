"""Q-learning on the base with networks: its default is FedAvg-DQN, and its hooks are asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learning needs the extra classic")
pytest.importorskip("jax", reason="Q-learning needs the extra classic")

from support.gridworld import Gridworld
from support.gridworld import Settings as GridSettings
from support.rounds import Memory, play, same

from fedrl.algorithms.q_learning import QLearning, Settings
from fedrl.algorithms.q_learning.networks import ClientRound
from fedrl.algorithms.qhd import q_learning_kernels as counters
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.feddqn import FedDQN
from fedrl.algorithms.qhd.dqn.feddqn import Settings as DQNSettings
from fedrl.core.types import Job, Result, UserError
from fedrl.envs.discrete.worlds import Settings as WorldSettings
from fedrl.envs.discrete.worlds import World

SMALL = {"hidden": (16, 12), "episodes": 4, "batch": 8, "replay": 300, "eval_episodes": 2}
RANDOM = SMALL | {"epsilon_decay": 1.0}
"""Actions are drawn, never chosen: rounding cannot lead to another episode."""


def world(clients: int = 2, name: str = "cartpole-v1") -> World:
    return World(WorldSettings(name=name), clients, 0)


def made(cls: type[QLearning] = QLearning, clients: int = 2, **settings) -> QLearning:
    own = [[client] for client in range(clients)]
    return cls(cls.Settings(**(SMALL | settings)), world(clients), 3, own)


def first(algorithm, client: int = 0, seed: int = 5) -> Result:
    return algorithm.local(Job(client, algorithm.broadcast(algorithm.init(1), 1), None, seed))


@pytest.mark.slow
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05])
@pytest.mark.parametrize("huber", [0.0, 0.3])
@pytest.mark.parametrize("double", [True, False])
def test_an_update_is_the_compiled_learners(double, huber, max_grad_norm):
    """JAX's gradient of the default loss, and Adam, against `dqn.td_update` on the same batches."""
    algorithm = made(
        double=double, huber=huber, max_grad_norm=max_grad_norm, lr=0.01, hidden=(13, 10)
    )
    start = algorithm.start_of(Job(0, algorithm.broadcast(algorithm.init(1), 1), None, 4))
    here, shape = ClientRound(algorithm.runner, start, 1.0), algorithm.runner.shape
    learner, random = here.learner, np.random.default_rng(3)
    learner.states[:40] = random.normal(size=(40, 4))
    learner.nexts[:40] = random.normal(size=(40, 4))
    learner.rewards[:40] = random.normal(size=40)
    learner.actions[:40] = random.integers(2, size=40)
    learner.terminal[:40:3] = True
    learner.target[:] = dqn.draw_weights(shape, 2)
    learner.counters[counters.SIZE] = 40
    here.moving = here.moving._replace(target=np.array(learner.target))
    theirs = dqn.Learner(*(array.copy() for array in learner))
    work, rules = dqn.work(shape, 8), here.rules
    for _ in range(3):
        counters.pick(theirs.counters, work.picks)
        dqn.td_update(theirs, shape, rules, work)
    here.update(2)
    here.update(1)
    ours = here.end()["weights"]
    assert np.abs(theirs.online - start.theta["weights"]).max() > 0.01
    np.testing.assert_allclose(ours, theirs.online, atol=1e-5)
    np.testing.assert_allclose(learner.first, theirs.first, atol=1e-5)
    np.testing.assert_allclose(learner.second, theirs.second, atol=1e-6)
    np.testing.assert_array_equal(learner.counters, theirs.counters)


PERIODS = [
    {},
    {"sync_steps": 7, "train_every": 3, "gradient_steps": 2},
    {"sync_steps": 0, "sync_episodes": 2, "learning_starts": 30},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole-v1", "acrobot-v1", "lunarlander-v3"])
@pytest.mark.parametrize("periods", PERIODS, ids=["plain", "steps", "episodes"])
def test_a_round_is_the_compiled_learners(name, periods):
    """The same episodes, replay and random numbers; weights and delayed weights to rounding."""
    if name == "lunarlander-v3":
        pytest.importorskip("Box2D", reason="LunarLander needs the extra box2d")
    how = RANDOM | periods | {"episodes": 3 if name == "cartpole-v1" else 1}
    where = world(2, name)
    ours = QLearning(Settings(**how), where, 3, [[0], [1]])
    theirs = FedDQN(DQNSettings(**how), where, [[0], [1]])
    a, b = first(ours), first(theirs)
    assert a.metrics == b.metrics
    assert a.weight == b.weight
    learned = ours.init(1)["theta"]["weights"] + a.update["weights"]
    assert np.abs(a.update["weights"]).max() > 1e-3
    np.testing.assert_allclose(learned, b.update["weights"], atol=5e-4)
    for field in dqn.Learner._fields:
        kept, wanted = a.state["learner"][field], b.state[field]
        np.testing.assert_allclose(kept, wanted, atol=5e-4, err_msg=field)
        if field in ("states", "actions", "rewards", "nexts", "terminal", "counters", "epsilon"):
            np.testing.assert_array_equal(kept, wanted, err_msg=field)


@pytest.mark.slow
def test_many_clients_are_each_as_alone():
    algorithm = made()
    sent = algorithm.broadcast(algorithm.init(1), 1)
    jobs = [Job(client, sent, None, 7 + client) for client in (0, 1)]
    for together, job in zip(algorithm.local_many(jobs), jobs, strict=True):
        alone = algorithm.local(job)
        same(together.update, alone.update)
        same(together.state, alone.state)
        assert together.metrics == alone.metrics


def test_a_client_alone_is_not_disturbed_by_its_rounds():
    """What it sent comes back as it was: its delayed weights stay, and two rounds of 4 episodes
    end where one of 8 does, but for the rounding of θ_r + Δ."""
    cut, whole = made(clients=1, **RANDOM), made(clients=1, **RANDOM | {"episodes": 8})
    state, kept = cut.init(1), None
    for round in (1, 2):
        result = cut.local(Job(0, cut.broadcast(state, round), kept, 5))
        state, kept = cut.step(state, result.update, round), result.state
        np.testing.assert_array_equal(state["theta"]["weights"], kept["learner"]["online"])
    at_once = first(whole)
    np.testing.assert_array_equal(kept["learner"]["target"], cut.init(1)["theta"]["weights"])
    np.testing.assert_array_equal(kept["learner"]["counters"], at_once.state["learner"]["counters"])
    learned = whole.init(1)["theta"]["weights"] + at_once.update["weights"]
    np.testing.assert_allclose(state["theta"]["weights"], learned, atol=1e-4)


def test_news_from_the_server_sync_the_delayed_weights():
    algorithm = made(clients=1, episodes=1)
    kept = first(algorithm).state
    other = {"weights": dqn.draw_weights(algorithm.runner.shape, 9)}
    sent = algorithm.broadcast({"theta": other}, 2)
    for settings, wanted in ((True, other["weights"]), (False, kept["learner"]["target"])):
        algorithm.settings = replace(algorithm.settings, sync_on_receipt=settings)
        here = ClientRound(algorithm.runner, algorithm.start_of(Job(0, sent, kept, 1)), 1.0)
        np.testing.assert_array_equal(here.moving.online, other["weights"])
        np.testing.assert_array_equal(here.moving.target, wanted)


class Reversed(QLearning):
    """Rewards have the other sign."""

    def target(self, now):
        return super().target(replace(now, rewards=-now.rewards))


@pytest.mark.slow
def test_a_poisoned_client_learns_from_rewards_of_the_other_sign():
    plain = made()
    sent = plain.broadcast(plain.init(1), 1)
    poisoned = plain.poisoned(Job(0, sent, None, 5))
    np.testing.assert_allclose(
        poisoned.update["weights"], first(made(Reversed)).update["weights"], atol=1e-5
    )
    assert np.abs(poisoned.update["weights"] - first(plain).update["weights"]).max() > 1e-3


class Residual(QLearning):
    """Baird's residual gradient: the target moves too."""

    def loss(self, now):
        return (now.taken - now.bootstrap(now.q_next.max(-1))) ** 2 / 2


@pytest.mark.slow
def test_a_loss_may_be_differentiated_through_the_next_values():
    """Against finite differences of the loss itself."""
    import jax

    algorithm = made(Residual, hidden=(5, 4), lr=0.01)
    start = algorithm.start_of(Job(0, algorithm.broadcast(algorithm.init(1), 1), None, 4))
    here, random = ClientRound(algorithm.runner, start, 1.0), np.random.default_rng(0)
    rows = random.normal(size=(1, 8, 11)).astype(np.float32)
    rows[..., 8] = random.integers(2, size=8)
    rows[..., 10] = [1, 0, 0, 0, 1, 0, 0, 0]
    corrections = np.array([[1.0, 0.0]], np.float32)  # θ − first / TINY: Adam's mean is visible
    moved = algorithm.runner.updates(here.moving, rows, corrections, here.known)
    states, nexts, actions = rows[0, :, :4], rows[0, :, 4:8], rows[0, :, 8].astype(int)

    def loss(weights):
        q = algorithm.runner.values({"weights": weights}, states)[np.arange(8), actions]
        ahead = algorithm.runner.values({"weights": weights}, nexts).max(-1)
        goal = rows[0, :, 9] + 0.99 * (1 - rows[0, :, 10]) * ahead
        return ((q - goal) ** 2).mean() / 2

    wanted = jax.grad(loss)(here.moving.online)
    np.testing.assert_allclose(np.asarray(moved.first), 0.1 * wanted, atol=1e-6)


class Counting(QLearning):
    """Everything that a method may keep: the server counts rounds, a client its updates."""

    @dataclass(frozen=True)
    class Settings(QLearning.Settings):
        name: str = "counting"

    def server_tensors(self, theta):
        return {"rounds": np.zeros(1, np.float32)}

    def client_tensors(self, theta):
        return {"updates": np.zeros(1, np.float32), "before": theta}

    def finish(self, start, last, server, client, steps):
        sent, _ = super().finish(start, last, server, client, steps)
        kept = {"updates": client["updates"] + steps, "before": last}
        return {**sent, "seen": server["rounds"] + 0}, kept

    def step(self, state, mean, round):
        moved = super().step(state, mean, round)
        return moved | {"rounds": mean["seen"] + 1}


@pytest.mark.slow
def test_what_a_method_keeps_is_declared_sent_and_kept():
    algorithm = made(Counting, clients=2)
    store = play(algorithm, rounds=3, clients=2)
    assert store.last.states[0]["rounds"] == 3
    for client in (0, 1):
        state = store.last.clients[client]
        assert state["updates"] == state["learner"]["counters"][counters.UPDATES]
    specs = algorithm.declare(algorithm.broadcast(algorithm.init(0), 1))
    assert {name: spec.shape for name, spec in specs.items()} == {
        "weights": algorithm.init(0)["theta"]["weights"].shape,
        "seen": (1,),
    }
    half = play(algorithm, rounds=1, clients=2)
    gone_on = play(algorithm, rounds=3, clients=2, store=Memory(half.last))
    same(gone_on.last.states[0], store.last.states[0])


def test_the_server_averages_or_steps_by_its_optimiser():
    algorithm = made(server_optimizer="momentum", server_lr=0.5)
    state = algorithm.init(1)
    change = {"weights": np.ones_like(state["theta"]["weights"])}
    after = algorithm.step(algorithm.step(state, change, 1), change, 2)
    moved = after["theta"]["weights"] - state["theta"]["weights"]
    np.testing.assert_allclose(moved, 0.5 * (1 + 1.9), rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"lr": -1.0}, r"algorithm\.lr"),
        ({"batch": 0}, r"algorithm\.batch"),
        ({"batch": 400}, r"algorithm\.replay"),
        ({"hidden": (8,)}, r"algorithm\.hidden"),
        ({"local_steps": 0}, r"algorithm\.local_steps"),
        ({"samples": -1}, r"algorithm\.samples"),
        ({"server_lr": 0.0}, r"algorithm\.server_lr"),
    ],
)
def test_impossible_settings_are_refused(wrong, says):
    with pytest.raises(UserError, match=says):
        Settings(**(SMALL | wrong))


@pytest.mark.slow
def test_a_client_learns_to_balance():
    """Random play keeps the pole up for 22 steps; within 200 episodes ten of them take 60."""
    how = {"hidden": (32, 32), "lr": 2e-3, "batch": 32, "sync_steps": 50, "gamma": 0.95}
    algorithm = made(clients=1, **how, replay=10_000, epsilon_decay=0.9, episodes=10)
    state, kept = algorithm.init(1), None
    for round in range(1, 21):
        result = algorithm.local(Job(0, algorithm.broadcast(state, round), kept, 5))
        state, kept = algorithm.step(state, result.update, round), result.state
        if result.metrics["train/return"] > 60:
            return
    pytest.fail(f"it learned nothing: {kept['returns']}")


class Watched(Gridworld):
    """Remembers whose environments were played."""

    def __init__(self) -> None:
        super().__init__(GridSettings(size=3), 3, 0)
        self.seen: list[int] = []

    def take(self, client: int):
        self.seen.append(client)
        return super().take(client)


@pytest.mark.slow
def test_where_environments_differ_each_client_plays_its_own():
    """And a centralized one everybody's; evaluation says what each client gets."""
    grids = Watched()
    apart = QLearning(Settings(**SMALL), grids, 1, [[0], [1], [2]])
    state = apart.init(0)
    apart.local(Job(2, apart.broadcast(state, 1), None, 5))
    assert set(grids.seen) == {2}
    grids.seen.clear()
    together = QLearning(Settings(**SMALL | {"episodes": 20}), grids, 1, [[0, 1, 2]])
    result = together.local(Job(0, together.broadcast(state, 1), None, 5))
    assert set(grids.seen) == {0, 1, 2}
    assert result.metrics["env/episodes"] == 60
    told = apart.evaluate([state], [[0, 1, 2]], 0, 3)
    each = apart.evaluate_clients(state, 3, SMALL["eval_episodes"])
    assert told["eval/return"] == pytest.approx(each.mean())
    assert told["eval/return_min"] == pytest.approx(each.min())


def test_continuous_actions_are_refused():
    gymnasium = pytest.importorskip("fedrl.envs.gymnasium.world", reason="needs gymnasium")
    pendulum = gymnasium.World(gymnasium.Settings(id="Pendulum-v1"), 1, 0)
    with pytest.raises(UserError, match="continuous actions"):
        QLearning(Settings(**SMALL), pendulum, 1, [[0]])


def test_a_client_s_own_policy_is_what_it_had_learned():
    """Another one than everybody's: by the weights that it sent."""
    algorithm = made()
    state = algorithm.init(1)
    result = first(algorithm)
    own = algorithm.own_policy(result.state, state, 0)
    states = np.random.default_rng(0).normal(size=(9, 4))
    moved = {"weights": state["theta"]["weights"] + result.update["weights"]}
    np.testing.assert_allclose(
        own.outputs(states), algorithm.runner.policy(moved).outputs(states), rtol=1e-5, atol=1e-6
    )
    assert not np.allclose(own.outputs(states), algorithm.policy(state).outputs(states), atol=1e-4)
    with pytest.raises(UserError, match="keep no Q of their own"):
        algorithm.own_policy({}, state, 0)
