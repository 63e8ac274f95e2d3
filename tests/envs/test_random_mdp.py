"""Random MDPs: the generators' promises; exact solves against sums, samples and differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.core.types import UserError
from fedrl.envs.control import random_mdp as mdp

KERNELS = ["uniform", "bernoulli", "orthogonal"]
GAMMA = 0.9


def problem(seed: int, states: int = 3, actions: int = 3):
    world = mdp.World(mdp.Settings(states=states, actions=actions, kappa=0.7), 2, seed)
    logits = np.random.default_rng(seed).normal(size=(states, actions))
    return world, logits


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0])
def test_kernels_are_distributions_and_equal_without_heterogeneity(kernel, kappa):
    world = mdp.World(mdp.Settings(kernel=kernel, kappa=kappa, density=0.1), 4, 0)
    assert (world.kernels >= 0).all()
    np.testing.assert_allclose(world.kernels.sum(-1), 1, rtol=1e-14)
    assert world.initial.sum() == pytest.approx(1)
    spread = np.ptp(world.kernels, axis=0).max()
    assert (spread < 1e-15) == (kappa == 0)


def test_orthogonal_neighbours_never_overlap():
    world = mdp.World(mdp.Settings(kernel="orthogonal", kappa=1.0), 4, 3)
    support = world.kernels > 0
    assert not (support[0] & support[1]).any()
    assert (support[0] | support[1]).all()
    np.testing.assert_array_equal(support[0], support[2])
    assert support.any(-1).all()


def test_density_is_the_share_of_possible_transitions():
    world = mdp.World(mdp.Settings(states=20, kernel="bernoulli", kappa=1.0, density=0.3), 4, 0)
    assert (world.kernels > 0).mean() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("kernel", KERNELS)
def test_common_random_numbers_across_kappa_and_number_of_clients(kernel):
    own, nominal, half = (
        mdp.World(mdp.Settings(kernel=kernel, kappa=kappa), 3, 5) for kappa in (1.0, 0.0, 0.5)
    )
    np.testing.assert_array_equal(own.rewards, half.rewards)
    np.testing.assert_allclose(half.kernels, (own.kernels + nominal.kernels) / 2, atol=1e-15)
    more = mdp.World(half.settings, 5, 5)
    np.testing.assert_array_equal(more.kernels[:3], half.kernels)
    assert np.abs(mdp.World(half.settings, 3, 6).kernels - half.kernels).max() > 0.01


def test_params_of_one_client_and_of_a_pool():
    world, _ = problem(0)
    one, pool = world.params([1]), world.params([0, 1])
    np.testing.assert_array_equal(one["kernel"], world.kernels[1:2])
    np.testing.assert_array_equal(pool["kernel"], world.kernels)
    np.testing.assert_array_equal(pool["reward"], np.stack([world.rewards] * 2))


def test_solves_agree_with_power_iteration_and_with_each_other():
    world, logits = problem(1)
    policy = mdp.softmax(logits)
    value, action_value = mdp.values(policy, world.kernels, world.rewards, GAMMA)
    visits = mdp.visitation(policy, world.kernels, world.initial, GAMMA)
    distribution, expected = np.tile(world.initial, (2, 1)), np.zeros((2, 3))
    for t in range(400):
        expected += GAMMA**t * distribution
        distribution = np.einsum("ns,sa,nsat->nt", distribution, policy, world.kernels)
    np.testing.assert_allclose(visits, expected, rtol=1e-12)
    exact = mdp.performance(policy, world.kernels, world.rewards, world.initial, GAMMA)
    np.testing.assert_allclose(exact, visits @ np.sum(policy * world.rewards, -1), rtol=1e-12)
    np.testing.assert_allclose(np.sum(policy * action_value, -1), value, rtol=1e-12)
    long = mdp.performance(policy, world.kernels, world.rewards, world.initial, GAMMA, horizon=400)
    np.testing.assert_allclose(long, exact, rtol=1e-12)


def test_finite_horizon_performance_by_monte_carlo():
    world, logits = problem(2)
    policy, rng, runs, horizon = mdp.softmax(logits), np.random.default_rng(0), 20_000, 6
    state, total = rng.integers(3, size=runs), np.zeros(runs)
    for t in range(horizon):
        action = (rng.random(runs)[:, None] > policy.cumsum(-1)[state]).sum(-1).clip(max=2)
        total += GAMMA**t * world.rewards[state, action]
        state = (rng.random(runs)[:, None] > world.kernels[0].cumsum(-1)[state, action]).sum(-1)
        state = state.clip(max=2)
    exact = mdp.performance(
        policy, world.kernels[0], world.rewards, world.initial, GAMMA, horizon=horizon
    )
    assert abs(total.mean() - exact) < 4 * total.std() / runs**0.5


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), horizon=st.sampled_from([None, 1, 4]))
@pytest.mark.parametrize("parametrisation", ["softmax", "direct"])
def test_gradient_is_the_derivative_of_performance(parametrisation, seed, horizon):
    world, logits = problem(seed)
    theta = logits if parametrisation == "softmax" else mdp.softmax(logits)
    read = mdp.softmax if parametrisation == "softmax" else lambda table: table
    rest = (world.kernels, world.rewards, world.initial, GAMMA)
    # one perturbed table per entry, all differences in two batched solves
    bumps = 1e-5 * np.eye(9).reshape(9, 1, 3, 3)
    up = mdp.performance(read(theta + bumps), *rest, horizon=horizon)
    down = mdp.performance(read(theta - bumps), *rest, horizon=horizon)
    numeric = ((up - down) / 2e-5).T.reshape(2, 3, 3)
    exact = mdp.gradient(read(theta), *rest, parametrisation, horizon)
    np.testing.assert_allclose(exact, numeric, atol=1e-7)


def test_upper_bound_is_the_best_of_all_deterministic_policies_of_each_client():
    world, _ = problem(4, states=3, actions=2)
    choices = np.stack(np.meshgrid(*[[0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
    policies = np.eye(2)[choices][:, None]
    every = mdp.performance(policies, world.kernels, world.rewards, world.initial, GAMMA)
    bound = mdp.upper_bound(world.kernels, world.rewards, world.initial, GAMMA)
    assert bound == pytest.approx(every.max(0).mean(), rel=1e-12)
    assert bound >= every.mean(1).max()


@pytest.mark.parametrize(
    "key, value",
    [
        ("kappa", 1.5),
        ("gamma", 1.0),
        ("horizon", 0),
        ("states", 0),
        ("density", 0.0),
        ("kernel", "other"),
    ],
)
def test_impossible_settings_name_the_key(key, value):
    with pytest.raises(UserError, match=f"world.{key}"):
        replace(mdp.Settings(), **{key: value})
