"""The compiled local rounds against step-by-step NumPy, exact gradients, and a brute projection."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from fedrl.algorithms.momentum.local_steps import tabular_kernels as kernels
from fedrl.algorithms.momentum.local_steps import tabular_sampling as sampling
from fedrl.algorithms.momentum.local_steps.tabular_worlds import TabularRunner
from fedrl.algorithms.momentum.settings import Settings
from fedrl.algorithms.policy_gradient import LocalStep
from fedrl.algorithms.policy_gradient.runners import Start
from fedrl.core.types import UserError
from fedrl.envs.control import random_mdp as mdp

GAMMA = 0.9
VARIANTS = [("svrpg", "softmax"), ("svrpg", "direct"), ("hapg", "softmax")]


def make(method: str = "svrpg", horizon: int = 7, **changes):
    given = {
        "beta": 0.3,
        "local_steps": 3,
        "lr": 0.02,
        "weight_clip": 0.0,
        "trajectories": 2,
        "policy": "softmax",
        "floor": 0.02,
    }
    world = mdp.World(mdp.Settings(states=3, actions=4, horizon=horizon, kappa=0.8), 2, 1)
    name = "fedhapg-m" if method == "hapg" else "fedsvrpg-m"
    return TabularRunner(world, Settings(name, **{**given, **changes}))


def tables(runner: TabularRunner, count: int, seed: int = 0):
    """θ, θ_prev, u for `count` pairs."""
    shape = (count, *runner.world.rewards.shape)
    rng = np.random.default_rng(seed)
    theta, u = rng.normal(size=shape), rng.normal(size=shape)
    prev = theta + 0.3 * rng.normal(size=shape)
    if runner.direct:
        theta, prev = mdp.softmax(0.5 * theta), mdp.softmax(0.5 * prev)
    return tuple({runner.name: table} for table in (theta, prev, u))


def anchored(theta, previous, direction):
    return Start(theta, {"previous": previous, "direction": direction}, {})


def pool(runner: TabularRunner, count: int, clients=(0, 1)):
    params = runner.world.params(clients)
    return {name: np.stack([value] * count) for name, value in params.items()}


def log_policy(theta, direct):
    return np.log(theta) if direct else np.log(mdp.softmax(theta))


def step_gradients(theta, states, actions, direct):
    """∇log π(a_t|s_t) [H,S,A]."""
    policy = theta if direct else mdp.softmax(theta)
    out = np.zeros((len(states), *theta.shape))
    for t, (s, a) in enumerate(zip(states, actions)):
        if direct:
            out[t, s, a] = 1 / policy[s, a]
        else:
            out[t, s] = -policy[s]
            out[t, s, a] += 1
    return out


def plain_gradient(theta, states, actions, rewards, direct=False):
    discounted = GAMMA ** np.arange(len(rewards)) * rewards
    to_go = discounted[::-1].cumsum()[::-1]
    return np.einsum("t,tsa->sa", to_go, step_gradients(theta, states, actions, direct))


def plain_direction(runner, theta, prev, u, params, seed, index):
    """u_{r,k} of one trajectory, by the definitions, and the weight used."""
    s = runner.settings
    play = (params["kernel"], runner.world.initial, np.uint64(seed), runner.world.settings.horizon)
    alpha, place, states, actions = sampling.path(theta, runner.direct, *play, index)
    at = alpha * prev + (1 - alpha) * theta
    if s.method == "hapg":
        _, place, states, actions = sampling.path(at, False, *play, index)
    rewards = params["reward"][place][states, actions]

    def gradient(table):
        return plain_gradient(table, states, actions, rewards, runner.direct)

    def weight(over, under):
        ratio = log_policy(over, runner.direct) - log_policy(under, runner.direct)
        w = np.exp(ratio[states, actions].sum())
        return min(w, s.weight_clip) if s.weight_clip else w

    if s.method == "svrpg":
        g, w = gradient(theta), weight(prev, theta)
        return s.beta * g + (1 - s.beta) * (u + g - w * gradient(prev)), w
    w, v, small = weight(theta, at), theta - prev, 1e-5
    score = step_gradients(at, states, actions, False).sum(0)
    # g = Σ Ψ ∇log π has a symmetric derivative, so ∇⟨g, v⟩ is g's derivative along v
    turn = (gradient(at + small * v) - gradient(at - small * v)) / (2 * small)
    curvature = (score * v).sum() * gradient(at) + turn
    return s.beta * w * gradient(theta) + (1 - s.beta) * (u + curvature), w


@pytest.mark.slow
@pytest.mark.parametrize("method, policy", VARIANTS)
@pytest.mark.parametrize("clip", [0.0, 1.1])
def test_local_round_equals_plain_numpy(method, policy, clip):
    runner = make(method=method, policy=policy, weight_clip=clip)
    start = tables(runner, 2)
    params, seeds = pool(runner, 2), np.array([11, 12], np.uint64)
    delta, _, stats = runner.local(anchored(*start), params, seeds)
    for pair in range(2):
        theta, prev, u = (tree[runner.name][pair] for tree in start)
        own = {name: value[pair] for name, value in params.items()}
        here, weights = theta, []
        for k in range(3):
            parts = [
                plain_direction(runner, here, prev, u, own, seeds[pair], 2 * k + m) for m in (0, 1)
            ]
            here = here + 0.02 * np.mean([part[0] for part in parts], axis=0)
            here = runner.project({runner.name: here})[runner.name]
            weights += [part[1] for part in parts]
        np.testing.assert_allclose(delta[runner.name][pair], here - theta, rtol=1e-6, atol=1e-8)
        assert stats["weight_mean"][pair] == pytest.approx(np.mean(weights), rel=1e-6)
        assert stats["weight_var"][pair] == pytest.approx(np.var(weights), rel=1e-6)
        assert stats["weight_clipped"][pair] == np.mean(np.isclose(weights, clip, atol=0))
    np.testing.assert_array_equal(stats["steps"], 3 * 2 * 7)


@pytest.mark.parametrize("policy", ["softmax", "direct"])
def test_without_momentum_it_is_plain_policy_gradient_and_ignores_the_anchor(policy):
    runner = make(beta=1.0, policy=policy, local_steps=1, trajectories=4)
    theta, _, u = tables(runner, 3)
    params, seeds = pool(runner, 3), np.arange(3, dtype=np.uint64)
    first, _ = runner.estimate(LocalStep.gradient, Start(theta, {}, {}), params, seeds, 4)
    stepped = runner.project({runner.name: theta[runner.name] + 0.02 * first[runner.name]})
    lost = {runner.name: np.full_like(u[runner.name], np.nan)}
    delta, _, _ = runner.local(anchored(theta, lost, lost), params, seeds)
    np.testing.assert_array_equal(delta[runner.name], stepped[runner.name] - theta[runner.name])


def sample(runner, count, **inputs):
    """Raw directions of `count` pairs with the same inputs and different seeds, K = M = 1."""
    repeat = {k: np.repeat(np.asarray(v)[None], count, 0) for k, v in inputs.items()}
    params = pool(runner, count)
    seeds = np.arange(count, dtype=np.uint64)
    pairs = kernels.Pairs(**repeat, kernel=params["kernel"], reward=params["reward"], seeds=seeds)
    rules = runner._rules()._replace(local_steps=1, trajectories=1, raw=True)
    return kernels.run(pairs, rules)[0]


def assert_mean(samples, exact):
    error = samples.std(0) / len(samples) ** 0.5
    assert (np.abs(samples.mean(0) - exact) < 4.5 * error + 1e-12).all()
    # the test has teeth: the error bar is small against what is tested
    assert np.linalg.norm(error) < 0.2 * np.linalg.norm(exact)


def exact_gradient(runner, theta):
    """∇J_H of the pool of both clients."""
    world = runner.world
    policy = theta if runner.direct else mdp.softmax(theta)
    return mdp.gradient(
        policy,
        world.kernels,
        world.rewards,
        world.initial,
        GAMMA,
        "direct" if runner.direct else "softmax",
        world.settings.horizon,
    ).mean(0)


@pytest.mark.parametrize("policy", ["softmax", "direct"])
def test_gradient_and_weighted_gradient_are_unbiased(policy):
    runner = make(horizon=4, policy=policy, beta=1.0)
    theta, prev, u = (tree[runner.name][0] for tree in tables(runner, 1))
    fresh = sample(runner, 60_000, theta=theta, anchor=prev, u=u)
    assert_mean(fresh, exact_gradient(runner, theta))
    runner = make(horizon=4, policy=policy, beta=0.5)
    anchored = sample(runner, 60_000, theta=theta, anchor=prev, u=0 * u)
    # same seeds, same trajectories: 2 (g - anchored) is the corrected part w g(τ|θ_prev)
    assert_mean(2 * (fresh - anchored), exact_gradient(runner, prev))


def test_hessian_correction_is_unbiased():
    theta, prev, u = (tree["logits"][0] for tree in tables(make(), 1))
    tiny = make(method="hapg", horizon=3, beta=1e-300)  # β → 0 leaves u + Λ
    curvature = sample(tiny, 200_000, theta=theta, anchor=prev, u=0 * u)
    assert_mean(curvature, exact_gradient(tiny, theta) - exact_gradient(tiny, prev))
    fresh = sample(make(method="hapg", horizon=3, beta=1.0), 60_000, theta=theta, anchor=prev, u=u)
    assert_mean(fresh, exact_gradient(tiny, theta))


@pytest.mark.parametrize("method, policy", VARIANTS)
def test_a_pair_depends_on_nothing_but_itself(method, policy):
    runner = make(method=method, policy=policy, horizon=40)
    theta, prev, u = tables(runner, 11)
    params, seeds = pool(runner, 11), np.arange(11, dtype=np.uint64)
    for tree in (theta, prev, u):
        tree[runner.name][7] = tree[runner.name][2]
    seeds[7] = seeds[2]
    threads = numba.get_num_threads()
    results = []
    for count in {1, threads}:
        numba.set_num_threads(count)
        results.append(runner.local(anchored(theta, prev, u), params, seeds)[0][runner.name])
    numba.set_num_threads(threads)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    np.testing.assert_array_equal(results[0][7], results[0][2])
    assert np.abs(results[0][3] - results[0][2]).max() > 0
    for pair in (0, 6, 10):
        alone = [{runner.name: t[runner.name][pair : pair + 1]} for t in (theta, prev, u)]
        own = {name: value[pair : pair + 1] for name, value in params.items()}
        delta, _, _ = runner.local(anchored(*alone), own, seeds[pair : pair + 1])
        np.testing.assert_array_equal(delta[runner.name][0], results[0][pair])


def test_path_follows_policy_kernel_and_first_state():
    runner = make(horizon=60_000)
    theta = tables(runner, 1)[0]["logits"][0]
    kernel = runner.world.kernels
    _, place, states, actions = sampling.path(
        theta, False, kernel, runner.world.initial, np.uint64(3), 60_000, 0
    )
    moves = np.zeros(kernel[0].shape)
    np.add.at(moves, (states[:-1], actions[:-1], states[1:]), 1)
    visits = moves.sum(-1)
    expected = visits.sum(-1, keepdims=True) * mdp.softmax(theta)
    assert (np.abs(visits - expected) < 5 * np.sqrt(expected)).all()
    expected = visits[..., None] * kernel[place]
    assert (np.abs(moves - expected) < 5 * np.sqrt(expected + 1)).all()
    starts = [
        sampling.path(theta, False, kernel, runner.world.initial, np.uint64(seed), 1, 0)
        for seed in range(3000)
    ]
    first = np.bincount([start[2][0] for start in starts], minlength=3)
    assert (np.abs(first - 1000) < 5 * 1000**0.5).all()
    assert abs(np.mean([start[1] for start in starts]) - 0.5) < 5 * 0.5 / 3000**0.5
    assert abs(np.mean([start[0] for start in starts]) - 0.5) < 5 * 0.29 / 3000**0.5


def test_projection_is_the_nearest_feasible_point():
    runner = make(policy="direct", floor=0.05)
    rng = np.random.default_rng(0)
    points = rng.normal(scale=rng.choice([0.1, 1.0, 10.0], size=(500, 1, 1)), size=(500, 3, 4))
    near = runner.project({"probabilities": points})["probabilities"]
    np.testing.assert_allclose(near.sum(-1), 1, rtol=1e-12)
    assert near.min() >= 0.05
    # KKT: one shift for all free entries of a row, and pinned ones would have to fall further
    shift = points - near
    free = near > 0.05
    level = np.where(free, shift, -np.inf).max(-1, keepdims=True)
    np.testing.assert_allclose(shift[free], np.broadcast_to(level, shift.shape)[free], atol=1e-12)
    assert (shift <= level + 1e-12).all()
    again = runner.project({"probabilities": near})["probabilities"]
    np.testing.assert_allclose(again, near, atol=1e-15)


@pytest.mark.parametrize("policy", ["softmax", "direct"])
def test_evaluation_is_exact(policy):
    runner = make(policy=policy)
    theta = tables(runner, 2)[0]
    params = {name: np.stack([v[:, None]] * 2) for name, v in runner.world.params([0, 1]).items()}
    seeds = np.zeros(2, np.uint64)
    probabilities = theta[runner.name] if runner.direct else mdp.softmax(theta[runner.name])
    world = runner.world
    rest = (world.kernels, world.rewards, world.initial, GAMMA)
    each = mdp.performance(probabilities[:, None], *rest)
    pairs = {name: value[:, 1] for name, value in params.items()}
    alone = runner.returns(theta, pairs, seeds, episodes=10)
    np.testing.assert_allclose(alone, each[:, 1:], rtol=1e-12)
    slope = mdp.gradient(probabilities[:, None], *rest, policy).mean(1)
    np.testing.assert_allclose(runner.exact_gradient(theta, params), slope, rtol=1e-12)
    # From some horizon on, the finite recursion and the linear solve are the same number.
    long = mdp.gradient(probabilities[:, None], *rest, policy, 400).mean(1)
    np.testing.assert_allclose(runner.exact_gradient(theta, params, 400), long, rtol=1e-9)
    if policy == "direct":
        np.testing.assert_allclose(runner.tangent(slope).sum(-1), 0, atol=1e-12)


def test_impossible_settings_name_the_key():
    with pytest.raises(UserError, match=r"algorithm\.floor"):
        make(policy="direct", floor=0.5)
    with pytest.raises(UserError, match=r"algorithm\.policy"):
        make(policy="direct", method="hapg")
