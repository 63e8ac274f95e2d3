"""SCAFFOLD: control variates cancel for one client, add up for many, and undo clients' drift."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.policy_gradients import Plain, make, played

from fedrl.aggregation.mean import mean
from fedrl.algorithms.classics.scaffold import Scaffold

pytestmark = pytest.mark.slow


def test_one_client_is_pavg():
    """c_i = c to rounding: the server adds what the client subtracts, in single precision."""
    one = played(make(Scaffold, clients=1), rounds=3).last.states[0]
    pavg = played(make(Plain, clients=1), rounds=3).last.states[0]
    np.testing.assert_allclose(
        one["theta"]["logits"], pavg["theta"]["logits"], rtol=1e-4, atol=1e-6
    )
    assert np.abs(one["control"]["logits"]).max() > 0.1


def test_c_is_the_mean_of_all_control_variates():
    """Of cohorts of two out of four, one client may not have been asked: its c_i is 0."""
    last = played(make(Scaffold, clients=4), rounds=4, cohort=2).last
    kept = [last.clients[c]["control"]["logits"] for c in sorted(last.clients)]
    assert 2 < len(kept) <= 4
    np.testing.assert_allclose(
        last.states[0]["control"]["logits"], np.sum(kept, 0) / 4, rtol=1e-4, atol=1e-6
    )


def test_each_alone_has_its_own_c():
    """In a federation of one client each, the share is 1, however many there are."""
    last = played(make(Scaffold), kind="independent").last
    for client, state in enumerate(last.states):
        np.testing.assert_allclose(
            state["control"]["logits"], last.clients[client]["control"]["logits"], rtol=1e-4,
            atol=1e-6,
        )  # fmt: skip


def test_clients_that_pull_apart_meet_at_the_best_of_all():
    """J_i(θ) = −½ h_i (θ − a_i)²: many local steps, and still θ = Σ h_i a_i / Σ h_i."""
    curve, best = np.array([1.0, 4.0, 0.5]), np.array([-2.0, 1.0, 6.0])
    method = make(Scaffold, lr=0.1, local_steps=10)
    state = {"theta": {"x": np.zeros(1)}, "control": {"x": np.zeros(1)}}
    kept = [{"control": {"x": np.zeros(1)}} for _ in curve]
    for number in range(400):
        asked = [number % 3, (number + 1) % 3]
        sent, updates = {"control": state["control"]}, []
        for i in asked:
            theta = state["theta"]
            for _ in range(10):
                now = SimpleNamespace(server=sent, client=kept[i])
                now.gradient = lambda x=theta["x"], i=i: {"x": curve[i] * (best[i] - x)}
                theta = {"x": theta["x"] + 0.1 * method.direction(now)["x"]}
            update, kept[i] = method.finish(state["theta"], theta, sent, kept[i], 10)
            updates.append((update, 1.0))
        state = method.step_partial(state, mean(updates), number, len(asked) / 3)
    np.testing.assert_allclose(state["theta"]["x"], (curve * best).sum() / curve.sum(), rtol=1e-6)
