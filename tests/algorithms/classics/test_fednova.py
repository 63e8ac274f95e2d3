"""FedNova: equal steps are PAvg, unequal ones by hand, and no client's objective counts more."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.policy_gradients import Plain, jobs, make, played
from support.rounds import same

from fedrl.aggregation.mean import mean
from fedrl.algorithms.classics.fednova import FedNova
from fedrl.clients.attacks import Settings as Attack
from fedrl.clients.attacks import attack_update
from fedrl.privacy import clipping

pytestmark = pytest.mark.slow


def test_equal_steps_are_pavg():
    """Division by a power of two is exact: to the last bit; by three to rounding."""
    nova, pavg = (played(make(cls, "cartpole", local_steps=4)).last for cls in (FedNova, Plain))
    same(nova.states[0], pavg.states[0])
    nova, pavg = (played(make(cls, "cartpole"), rounds=1).last for cls in (FedNova, Plain))
    for name, leaf in pavg.states[0]["theta"].items():
        np.testing.assert_allclose(nova.states[0]["theta"][name], leaf, rtol=1e-5, atol=1e-7)


def test_unequal_steps_by_hand():
    steps = np.array([1, 2, 5])
    nova, plain = (make(cls, client_steps=(1, 2, 5)) for cls in (FedNova, Plain))
    changes = np.array([r.update["logits"] for r in plain.local_many(jobs(plain))], float)
    results = nova.local_many(jobs(nova))
    state = nova.step(nova.init(0), mean([(r.update, 1.0) for r in results]), 1)
    by_hand = steps.mean() * (changes / steps[:, None, None]).mean(0)
    np.testing.assert_allclose(state["theta"]["logits"], by_hand, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("cls", "weights"), [(FedNova, [1, 1, 1]), (Plain, [1, 2, 9])])
def test_more_steps_do_not_weigh_more(cls, weights):
    """J_i(θ) = −½ (θ − a_i)² with small steps: PAvg ends at the mean of a_i weighted by K_i."""
    best, steps = np.array([-2.0, 1.0, 6.0]), [1, 2, 9]
    method = make(cls, lr=1e-4, local_steps=4, client_steps=(1, 2, 9))
    state = {"theta": {"x": np.zeros(1)}}
    method.server_lr = 4e-2  # 100 times the clients' mean step: sooner at the end
    for number in range(800):
        updates = []
        for i, count in enumerate(steps):
            theta = state["theta"]
            for _ in range(count):
                now = SimpleNamespace(gradient=lambda x=theta["x"], i=i: {"x": best[i] - x})
                theta = {"x": theta["x"] + 1e-4 * method.direction(now)["x"]}
            updates.append(
                (method.finish(state["theta"], theta, {}, {}, np.float64(count))[0], 1.0)
            )
        state = method.step(state, mean(updates), number)
    wanted = np.average(best, weights=weights)
    np.testing.assert_allclose(state["theta"]["x"], wanted, atol=0.01)


def test_a_bound_on_the_length_of_updates_is_about_updates():
    """One that is longer than every change leaves them as they are: K_i is no part of them."""
    method = make(FedNova, client_steps=(1, 2, 5))
    work = jobs(method)
    form = clipping.layout(method, work[0].broadcast)
    for result in method.local_many(work):
        change = result.update["logits"]
        assert form.size == change.size
        assert clipping.clip(result.update, 1.01 * np.linalg.norm(change), form) is result.update


@pytest.mark.parametrize("kind", ["noise", "same-value"])
def test_a_lie_is_as_large_as_an_honest_change(kind: str):
    method = make(FedNova, client_steps=(1, 2, 5))
    honest = method.local_many(jobs(method))[2].update
    lie = attack_update(honest, {}, Attack(kind=kind, strength=1.0, clients=(2,)), 0)
    size = np.linalg.norm(lie["logits"]) / np.linalg.norm(honest["logits"])
    assert 0.5 < size < 2


def test_some_clients_of_a_round_move_as_far_as_all_would():
    """τ_eff is everybody's: without the client of 5 steps the others' d_i count the same."""
    method = make(FedNova, client_steps=(1, 2, 5))
    d = {"logits": np.ones((5, 5), np.float32)}
    moved = method.step(method.init(0), d, 1)
    np.testing.assert_allclose(moved["theta"]["logits"], 8 / 3, rtol=1e-5)


def test_drawn_numbers_of_steps_are_the_clients_own():
    method = make(FedNova, local_steps=10, local_steps_spread=0.9)
    state = method.init(3)
    each = method.steps_of(method.broadcast(state, 1), range(len(method.client_env_ids)))
    d = {"logits": np.ones((5, 5), np.float32)}
    moved = method.step(state, d, 1)
    np.testing.assert_allclose(moved["theta"]["logits"], each.mean(), rtol=1e-5)
