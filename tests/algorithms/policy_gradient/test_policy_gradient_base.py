"""The base of federated policy gradients: one hook, every sort of world, the same numbers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support.policy_gradients import CLASSICS, KINDS, Gridworld, Plain, jobs, make, played
from support.rounds import same

from fedrl.algorithms.classics.fednova import FedNova
from fedrl.algorithms.classics.scaffold import Scaffold
from fedrl.algorithms.momentum.algorithm import Momentum
from fedrl.algorithms.policy_gradient import LocalStep, Settings
from fedrl.algorithms.policy_gradient.algorithm import stack
from fedrl.algorithms.policy_gradient.runners import Start
from fedrl.core import tree
from fedrl.core.types import UserError
from fedrl.core.update_refusal import ranges, refusal
from fedrl.engines.worker_pool import WorkerPool
from fedrl.envs.control import random_mdp

pytestmark = pytest.mark.slow


def test_the_gradient_as_direction_is_pavg_to_the_last_bit():
    pavg = played(make(Momentum, "cartpole", name="pavg", beta=1.0))
    base = played(make(Plain, "cartpole"))
    same(base.last.states[0]["theta"], pavg.last.states[0]["theta"])
    assert base.rounds[-1].metrics == pavg.rounds[-1].metrics


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cls", CLASSICS)
def test_every_method_plays_every_sort_of_world(cls, kind):
    """Together as one by one, as declared, and a run that goes on as one that was not stopped."""
    method = make(cls, kind)
    whole, half = played(method), played(method, rounds=1)
    rest = played(method, start=half.last)
    same(rest.last.states[0], whole.last.states[0])
    assert rest.rounds[-1].metrics == whole.rounds[-1].metrics
    work = jobs(method, whole.last.states[0])
    specs = method.declare(work[0].broadcast)
    for together, job in zip(method.local_many(work), work):
        assert refusal(together, specs, ranges(method)) is None
        alone = tree.flatten(method.local(job).update)
        for name, leaf in tree.leaves(together.update):
            np.testing.assert_allclose(leaf, alone[name], rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("cls", [Scaffold, CLASSICS[-1]])
def test_workers_give_the_numbers_of_one_process(cls):
    method = make(cls, "gridworld")
    with WorkerPool(partial(make, cls, "gridworld"), 2) as engine:
        apart = played(method, engine=engine)
    together = played(method)
    for (_, x), (_, y) in zip(
        tree.leaves(apart.last.states[0]), tree.leaves(together.last.states[0])
    ):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_with_fewer_steps_does_what_it_would_alone(kind):
    """In one program with others that take more; numbers of what it did not do are not told."""
    mixed = make(Plain, kind, client_steps=(2, 3, 1), trajectories=2)
    results = mixed.local_many(jobs(mixed))
    for result, job, steps in zip(results, jobs(mixed), (2, 3, 1)):
        equal = make(Plain, kind, local_steps=steps, trajectories=2)
        alone = equal.local(job)
        for name, leaf in alone.update.items():
            np.testing.assert_allclose(result.update[name], leaf, rtol=2e-4, atol=1e-6)
        assert result.metrics["env/steps"] == alone.metrics["env/steps"]
        assert result.metrics == pytest.approx(alone.metrics, rel=1e-4)
        np.testing.assert_allclose(result.state["returns"], alone.state["returns"], rtol=1e-5)


def test_numbers_of_steps_are_drawn_by_the_runs_seed():
    method = make(Plain, local_steps=10, local_steps_spread=0.5)
    sent = method.broadcast(method.init(1), 1)
    many = method.steps_of(sent, range(300))
    assert many.min() == 5
    assert many.max() == 15 == method.settings.most_steps
    np.testing.assert_array_equal(many[:9], method.steps_of(sent, range(9)))
    assert not np.array_equal(
        many, method.steps_of(method.broadcast(method.init(2), 1), range(300))
    )
    assert make(Plain).steps_of({}, range(3)) is None
    assert "steps_seed" not in make(Plain).init(1)


def test_unequal_steps_of_the_momentum_methods():
    """Tables are then played by JAX, with the same method."""
    method = make(Momentum, local_steps=2, client_steps=(1, 2, 3), beta=0.5)
    done = played(method, rounds=1).rounds[-1]
    assert done.metrics["env/steps"] == 3 * method.initial_batch * 10 + (1 + 2 + 3) * 10
    with pytest.raises(UserError, match="equal numbers"):
        make(Momentum, client_steps=(1, 2), policy="direct")


def test_tables_are_sampled_as_they_are():
    """The mean of many gradients is the exact one; 25 numbers, each within 6 standard errors."""
    method = make(Plain)
    world, draw = method.world, np.random.default_rng(0)
    theta = {"logits": draw.standard_normal((5, 5)).astype(np.float32)}
    params, pairs = stack([world.params([1])] * 60), 60
    start = Start(stack([theta] * pairs), {}, {})
    seeds = np.arange(pairs, dtype=np.uint64)
    found, stats = method.runner.estimate(LocalStep.gradient, start, params, seeds, 100)
    policy = random_mdp.softmax(theta["logits"].astype(float))
    exact = random_mdp.gradient(
        policy, world.kernels[1], world.rewards, world.initial, world.gamma, horizon=10
    )
    each = found["logits"].astype(float)
    error = each.std(0, ddof=1) / np.sqrt(pairs)
    assert (np.abs(each.mean(0) - exact) < 6 * error).all()
    value = random_mdp.performance(
        policy, world.kernels[1], world.rewards, world.initial, 1.0, horizon=10
    )
    assert abs(stats["return"].mean() - value) < 6 * stats["return"].std() / np.sqrt(pairs)


def test_rewards_turned_round_turn_the_gradient_round():
    for kind in KINDS:
        method = make(Plain, kind, local_steps=1)
        job = jobs(method)[1]
        honest, poisoned = method.local(job).update, method.poisoned(job).update
        for name, leaf in honest.items():
            np.testing.assert_allclose(poisoned[name], -leaf, rtol=1e-5, atol=1e-7)


def test_tables_are_evaluated_exactly():
    method = make(Plain)
    state = method.init(0)
    state["theta"]["logits"] = np.random.default_rng(0).standard_normal((5, 5)).astype("f4")
    policy = random_mdp.softmax(state["theta"]["logits"].astype(float))
    world = method.world
    tables = world.kernels, world.rewards, world.initial, world.gamma
    found = method.evaluate([state], [[0, 1, 2]], 0, 0)
    assert found["eval/return"] == pytest.approx(random_mdp.performance(policy, *tables).mean())
    slope = random_mdp.gradient(policy, *tables).mean(0)
    assert found["eval/grad_norm_sq"] == pytest.approx((slope**2).sum())


def test_a_world_in_numpy_is_learned():
    """A gridworld with discrete actions, on the host."""
    method = make(FedNova, "gridworld", lr=0.5, trajectories=8, eval_episodes=40)
    store = played(method, rounds=15)
    assert store.rounds[0].metrics["eval/return"] < 0.8
    assert store.rounds[-1].metrics["eval/return"] > 0.9
    assert isinstance(method.world, Gridworld)


def test_the_server_optimiser_is_in_the_state():
    method = make(Plain, server_optimizer="adam")
    state = played(method).last.states[0]
    assert state["optimizer.count"] == 2
    assert {"theta", "optimizer.first", "optimizer.second", "optimizer.count"} == set(state)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"local_steps": 0}, "algorithm.local_steps"),
        ({"lr": 0.0}, "algorithm.lr"),
        ({"local_steps_spread": 1.5}, "local_steps_spread"),
        ({"client_steps": (1, 0)}, "client_steps"),
        ({"client_steps": (1, 2), "local_steps_spread": 0.1}, "remove one"),
    ],
)
def test_impossible_settings(fields, words):
    with pytest.raises(UserError, match=words):
        Settings(**fields)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            lambda g: tree.map(lambda x: x.sum(), g),
            r"returns \w+ in the shape \(\); the parameter's",
        ),
        (lambda g: None, "a NoneType, not tensors"),
        (lambda g: {}, "direction returns nothing for "),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_direction_that_is_unlike_the_parameters_is_refused(kind, said, why):
    """One client's scalar would be broadcast, and learn something else, without a word."""

    class Wrong(Plain):
        def direction(self, now):
            return said(now.gradient())

    method = make(Wrong, kind)
    with pytest.raises(UserError, match=why):
        method.local(jobs(method, method.init(0))[0])


@pytest.mark.parametrize(
    ("finish", "why"),
    [
        (lambda *a: a[1], "two trees"),
        (lambda *a: (a[1], {}), "does not keep own, which client_tensors has"),
    ],
)
def test_a_finish_that_forgets_is_refused_before_clients_work(finish, why):
    class Wrong(Plain):
        def client_tensors(self, theta):
            return {"own": tree.zeros_like(theta)}

        def finish(self, start, last, server, client, steps):
            return finish(start, last, server, client, steps)

    method = make(Wrong, "cartpole")
    with pytest.raises(UserError, match=why):
        method.declare(method.broadcast(method.init(0), 1))
