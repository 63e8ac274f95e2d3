"""The mathematics of the estimators, by enumerating every trajectory of a small MDP."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrl.algorithms.momentum import gradient_estimators as estimators
from fedrl.algorithms.policy_gradient.gradient_estimators import (
    rewards_to_go,
    shortened,
    standardized,
)
from fedrl.algorithms.policy_gradient.policies import (
    Policy,
    categorical_mlp,
    gaussian_mlp,
    gaussian_sample_numpy,
)
from fedrl.envs.interfaces import Trajectories

STATES, ACTIONS, STEPS, GAMMA = 2, 3, 3, 0.8


def log_prob(theta, observations, actions):
    return jax.nn.log_softmax(theta["logits"])[observations, actions]


TABLE = Policy(lambda seed: {}, lambda *_: None, lambda *_: None, log_prob, (), "uniform")


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def mdp(seed: int):
    draw = np.random.default_rng(seed)
    kernel = draw.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    return kernel, draw.uniform(size=(STATES, ACTIONS)), draw.dirichlet(np.ones(STATES))


def everything(kernel, reward, initial):
    """Every trajectory: states [M,T], actions [M,T], rewards, and the dynamics' probability [M]."""
    states, actions, chance = [], [], []
    for s in itertools.product(range(STATES), repeat=STEPS):
        for a in itertools.product(range(ACTIONS), repeat=STEPS):
            moves = [kernel[s[t], a[t], s[t + 1]] for t in range(STEPS - 1)]
            states.append(s)
            actions.append(a)
            chance.append(initial[s[0]] * np.prod(moves))
    states, actions = np.array(states), np.array(actions)
    rewards = reward[states, actions]
    batch = Trajectories(states, actions, rewards, np.ones_like(rewards))
    return batch, np.array(chance)


def performance(theta, batch, chance):
    """J(θ) exactly: the sum over all trajectories of p(τ|θ) R(τ)."""
    discounted = (batch.rewards * GAMMA ** np.arange(STEPS)).sum(1)
    p = chance * jnp.exp(estimators.log_likelihood(TABLE, theta, batch))
    return (p * discounted).sum()


def logits(seed: int):
    return {"logits": np.random.default_rng(seed).standard_normal((STATES, ACTIONS))}


def expectation(theta, batch, chance, estimate):
    """E_τ~θ of an estimator that maps a minibatch of one trajectory to a gradient."""
    p = chance * np.exp(estimators.log_likelihood(TABLE, theta, batch))
    each = jax.vmap(estimate)(jax.tree.map(lambda x: x[:, None], batch))["logits"]
    return np.einsum("m,mij->ij", p, each)


def psi(batch):
    return rewards_to_go(batch.rewards, batch.mask, GAMMA)


@pytest.mark.parametrize("seed", range(4))
def test_gradient_is_unbiased(seed):
    batch, chance = everything(*mdp(seed))
    theta = logits(seed)
    exact = jax.grad(performance)(theta, batch, chance)["logits"]
    mean = expectation(
        theta, batch, chance, lambda one: estimators.gradient(TABLE, theta, one, psi(one))
    )
    np.testing.assert_allclose(mean, exact, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_weighted_gradient_moves_the_expectation(seed):
    """E_τ~θ [w g(τ|θ')] = ∇J(θ')."""
    batch, chance = everything(*mdp(seed))
    theta, other = logits(seed), logits(seed + 100)

    def estimate(one):
        weight, _ = estimators.importance_weight(TABLE, other, theta, one, 0.0)
        return estimators.gradient(TABLE, other, one, psi(one), weight)

    exact = jax.grad(performance)(other, batch, chance)["logits"]
    np.testing.assert_allclose(expectation(theta, batch, chance, estimate), exact, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_hessian_correction_is_the_gradient_difference(seed):
    """E_α E_τ~θ(α) [Λ] = ∇J(θ_{r,k}) − ∇J(θ_{r-1}), by Gauss-Legendre quadrature over α."""
    batch, chance = everything(*mdp(seed))
    theta, previous = logits(seed), logits(seed + 100)
    v = jax.tree.map(np.subtract, theta, previous)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    total = 0.0
    for node, weight in zip((nodes + 1) / 2, weights / 2):
        at = estimators.interpolate(theta, previous, node)
        total += weight * expectation(
            at,
            batch,
            chance,
            lambda one, at=at: estimators.hessian_correction(TABLE, at, v, one, psi(one)),
        )
    slope = jax.grad(performance)
    exact = slope(theta, batch, chance)["logits"] - slope(previous, batch, chance)["logits"]
    np.testing.assert_allclose(total, exact, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beta", [0.2, 0.7])
def test_svrpg_direction_has_the_expectation_of_equation_4(seed, beta):
    """E[u_{r,k}] = ∇J(θ_{r,k}) + (1-β)(u_r − ∇J(θ_{r-1}))."""
    batch, chance = everything(*mdp(seed))
    theta, previous, u = logits(seed), logits(seed + 100), logits(seed + 200)
    mean = expectation(
        theta,
        batch,
        chance,
        lambda one: estimators.svrpg(TABLE, theta, previous, u, one, psi(one), beta, 0.0)[0],
    )
    slope = jax.grad(performance)
    exact = slope(theta, batch, chance)["logits"] + (1 - beta) * (
        u["logits"] - slope(previous, batch, chance)["logits"]
    )
    np.testing.assert_allclose(mean, exact, atol=1e-12)


@pytest.mark.parametrize("beta", [0.2, 1.0])
def test_hapg_direction_has_the_expectation_of_algorithm_2(beta):
    """E[u_{r,k}] = β ∇J(θ_{r,k}) + (1-β)(u_r + ∇J(θ_{r,k}) − ∇J(θ_{r-1}))."""
    batch, chance = everything(*mdp(0))
    theta, previous, u = logits(0), logits(100), logits(200)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    total = 0.0
    for node, weight in zip((nodes + 1) / 2, weights / 2):
        at = estimators.interpolate(theta, previous, node)
        total += weight * expectation(
            at,
            batch,
            chance,
            lambda one, at=at: estimators.hapg(
                TABLE, theta, previous, u, at, one, psi(one), beta, 0.0
            )[0],
        )
    slope = jax.grad(performance)
    here, there = (slope(x, batch, chance)["logits"] for x in (theta, previous))
    exact = beta * here + (1 - beta) * (u["logits"] + here - there)
    np.testing.assert_allclose(total, exact, atol=1e-10)


@pytest.mark.slow
def test_hessian_vector_product_against_the_full_hessian():
    batch, _ = everything(*mdp(1))
    one = jax.tree.map(lambda x: x[7:8], batch)
    theta, v = logits(1), logits(2)

    def dot(flat):
        g = estimators.gradient(TABLE, {"logits": flat.reshape(STATES, ACTIONS)}, one, psi(one))
        return g["logits"].ravel()

    jacobian = jax.jacfwd(dot)(theta["logits"].ravel())
    second = (jacobian @ v["logits"].ravel()).reshape(STATES, ACTIONS)
    score = jax.grad(lambda t: estimators.log_likelihood(TABLE, t, one)[0])(theta)
    inner = (score["logits"] * v["logits"]).sum()
    first = inner * dot(theta["logits"].ravel()).reshape(STATES, ACTIONS)
    found = estimators.hessian_correction(TABLE, theta, v, one, psi(one))["logits"]
    np.testing.assert_allclose(found, first + second, atol=1e-12)


@pytest.mark.slow
def test_padding_changes_nothing():
    """What stands behind the end of an episode must not reach any estimate."""
    batch, _ = everything(*mdp(2))
    one = jax.tree.map(lambda x: x[11:13], batch)
    theta, previous, u = logits(1), logits(2), logits(3)

    def padded(x, value):
        return np.concatenate([x, np.full((2, 4), value, x.dtype)], 1)

    longer = Trajectories(
        padded(one.observations, 1),
        padded(one.actions, 2),
        padded(one.rewards, 99.0),
        padded(one.mask, 0.0),
    )
    for method in (
        lambda b: estimators.svrpg(TABLE, theta, previous, u, b, psi(b), 0.3, 0.0),
        lambda b: estimators.hapg(TABLE, theta, previous, u, theta, b, psi(b), 0.3, 0.0),
    ):
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), method(one), method(longer)
        )


@pytest.mark.slow
def test_weights_survive_long_trajectories():
    """Ten thousand steps: the product of probabilities underflows, the log ratio does not."""
    steps = 10_000
    draw = np.random.default_rng(0)
    batch = Trajectories(
        draw.integers(STATES, size=(1, steps)),
        draw.integers(ACTIONS, size=(1, steps)),
        np.ones((1, steps)),
        np.ones((1, steps)),
    )
    theta = logits(0)
    same, _ = estimators.importance_weight(TABLE, theta, theta, batch, 0.0)
    np.testing.assert_allclose(same, 1.0)
    near = {"logits": theta["logits"] + 1e-5 * logits(1)["logits"]}
    weight, _ = estimators.importance_weight(TABLE, near, theta, batch, 0.0)
    assert np.isfinite(weight).all()
    assert weight[0] > 0


def test_clipping_caps_and_counts():
    batch, _ = everything(*mdp(3))
    free, none = estimators.importance_weight(TABLE, logits(0), logits(9), batch, 0.0)
    capped, marks = estimators.importance_weight(TABLE, logits(0), logits(9), batch, 1.2)
    np.testing.assert_allclose(capped, np.minimum(free, 1.2))
    np.testing.assert_array_equal(marks, free > 1.2)
    assert not none.any()
    assert marks.any()


@pytest.mark.slow
def test_minibatch_is_the_mean_of_its_trajectories():
    batch, _ = everything(*mdp(4))
    some = jax.tree.map(lambda x: x[[3, 50, 120]], batch)
    theta, previous, u = logits(1), logits(2), logits(3)

    def direction(b):
        return estimators.svrpg(TABLE, theta, previous, u, b, psi(b), 0.4, 0.0)[0]["logits"]

    each = [direction(jax.tree.map(lambda x, i=i: x[i : i + 1], some)) for i in range(3)]
    np.testing.assert_allclose(direction(some), np.mean(each, 0), rtol=1e-12)


def test_long_directions_are_shortened_and_short_ones_left_alone():
    u = {"a": np.array([3.0, 0.0]), "b": np.array([[4.0]])}  # of norm 5
    np.testing.assert_allclose(shortened(u, 1.0)["b"], 0.8)
    np.testing.assert_allclose(shortened(u, 1.0)["a"], [0.6, 0.0])
    np.testing.assert_allclose(shortened(u, 10.0)["a"], u["a"])


def test_standardized_returns():
    draw = np.random.default_rng(0)
    values, mask = draw.uniform(size=(3, 9)), np.ones((3, 9))
    mask[1, 4:] = 0
    scaled = np.asarray(standardized(values, mask))[mask == 1]
    assert abs(scaled.mean()) < 1e-9
    assert abs(scaled.std() - 1) < 1e-4


@pytest.mark.slow
def test_categorical_sampling_follows_its_log_probabilities():
    policy = categorical_mlp(4, 3)
    theta = jax.tree.map(lambda x: np.asarray(x) * 30, policy.init(0))
    observation = np.array([0.3, -0.1, 0.7, 0.2])
    uniform = (np.arange(3000) + 0.5) / 3000
    drawn = np.asarray(jax.vmap(lambda u: policy.sample(theta, observation, u))(uniform))
    p = np.exp([policy.log_prob(theta, observation[None], np.array([a]))[0] for a in range(3)])
    assert abs(p.sum() - 1) < 1e-6
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 3000, p, atol=1e-3)


@pytest.mark.slow
def test_gaussian_density_and_its_numpy_twin():
    policy = gaussian_mlp(5, 2, log_std=-0.3)
    theta = policy.init(1)
    theta["log_std"] = np.array([-0.3, 0.4], np.float32)
    draw = np.random.default_rng(0)
    observations = draw.standard_normal((7, 5)).astype(np.float32)
    noise = draw.standard_normal((7, 2)).astype(np.float32)
    actions = jax.vmap(lambda o, z: policy.sample(theta, o, z))(observations, noise)
    rows = {name: np.stack([leaf] * 7) for name, leaf in theta.items()}
    np.testing.assert_allclose(
        gaussian_sample_numpy(rows, observations, noise), actions, rtol=2e-5, atol=2e-6
    )
    from scipy.stats import norm

    mean = gaussian_sample_numpy(rows, observations, 0 * noise)
    expected = norm.logpdf(np.asarray(actions), mean, np.exp(theta["log_std"])).sum(1)
    np.testing.assert_allclose(
        policy.log_prob(theta, observations, actions), expected, rtol=1e-4, atol=1e-5
    )
