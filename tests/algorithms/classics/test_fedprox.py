"""FedProx: without μ it is PAvg; with it, the fixed point of a quadratic in closed form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.policy_gradients import Plain, make, played
from support.rounds import same

from fedrl.algorithms.classics.fedprox import FedProx, FedProxSettings
from fedrl.core.types import UserError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["random_mdp", "cartpole"])
def test_without_mu_it_is_pavg_to_the_last_bit(kind):
    same(
        played(make(FedProx, kind, mu=0.0)).last.states[0],
        played(make(Plain, kind)).last.states[0],
    )


def test_many_steps_end_where_the_quadratic_says():
    """J(θ) = −½ ‖θ − a‖² with the pull of μ has its top at (a + μ θ_r) / (1 + μ)."""
    method = make(FedProx, mu=0.7)
    best, start = np.array([3.0, -1.0]), {"x": np.array([1.0, 1.0])}
    theta = dict(start)
    for _ in range(200):
        now = SimpleNamespace(theta=theta, start=start)
        now.gradient = lambda theta=theta: {"x": best - theta["x"]}
        theta = {"x": theta["x"] + 0.1 * method.direction(now)["x"]}
    np.testing.assert_allclose(theta["x"], (best + 0.7 * start["x"]) / 1.7, rtol=1e-12)


def test_a_client_is_held_back():
    free, held = (make(FedProx, mu=mu, local_steps=8, lr=0.1) for mu in (0.0, 9.0))
    length = [
        np.linalg.norm(played(m, rounds=1).last.states[0]["theta"]["logits"]) for m in (free, held)
    ]
    assert length[1] < 0.5 * length[0]


def test_impossible_settings():
    with pytest.raises(UserError, match=r"algorithm\.mu"):
        FedProxSettings(mu=-1.0)
