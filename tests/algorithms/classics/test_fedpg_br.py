"""FedPG-BR without Byzantine clients: the server's steps are SCSG's, by enumeration."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from support.policy_gradients import make, played
from support.rounds import same

import fedrl
from fedrl.algorithms.classics.fedpg_br import FedPGBR, FedPGBRSettings
from fedrl.algorithms.policy_gradient import LocalStep
from fedrl.algorithms.policy_gradient.gradient_estimators import rewards_to_go
from fedrl.algorithms.policy_gradient.policies import table
from fedrl.config.build import notes
from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.control import random_mdp
from fedrl.envs.interfaces import Trajectories

pytestmark = pytest.mark.slow

STATES, ACTIONS, STEPS, GAMMA = 2, 2, 3, 0.8
LR = 0.3


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


class Enumerated:
    """A runner whose estimate is the expectation over every trajectory of a tiny MDP."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.kernel = draw.dirichlet(np.ones(STATES), (STATES, ACTIONS))
        self.reward = draw.uniform(size=(STATES, ACTIONS))
        self.initial = draw.dirichlet(np.ones(STATES))
        paths = [
            (s, a)
            for s in itertools.product(range(STATES), repeat=STEPS)
            for a in itertools.product(range(ACTIONS), repeat=STEPS)
        ]
        self.states, self.actions = (np.array(x) for x in zip(*paths))
        moves = self.kernel[self.states[:, :-1], self.actions[:, :-1], self.states[:, 1:]]
        self.chance = self.initial[self.states[:, 0]] * moves.prod(1)
        self.rewards = self.reward[self.states, self.actions]
        self.calls = 0

    def likelihood(self, logits: np.ndarray) -> np.ndarray:
        return self.chance * random_mdp.softmax(logits)[self.states, self.actions].prod(1)

    def exact(self, logits: np.ndarray) -> np.ndarray:
        return random_mdp.gradient(
            random_mdp.softmax(logits), self.kernel, self.reward, self.initial, GAMMA, "softmax",
            STEPS,
        )  # fmt: skip

    def estimate(self, hook, start, params, seeds, count):
        self.calls += 1
        theta, server = jax.tree.map(lambda x: x[0], (start.theta, start.server))
        observations = np.eye(STATES)[self.states]
        batches = Trajectories(
            *(
                x[:, None]
                for x in (observations, self.actions, self.rewards, np.ones_like(self.rewards))
            )
        )
        policy = table(STATES, ACTIONS)

        def one(batch):
            psi = rewards_to_go(batch.rewards, batch.mask, GAMMA)
            return hook(LocalStep(theta, theta, server, {}, 0, batch, psi, theta, policy))

        each = np.asarray(jax.vmap(one)(batches)["logits"])
        mean = np.einsum("m,msa->sa", self.likelihood(theta["logits"]), each)
        return {"logits": mean[None]}, {"steps": np.array([count * STEPS])}


def numpy_scsg(runner: Enumerated, theta: np.ndarray, mu: np.ndarray, steps: int) -> np.ndarray:
    """Expected SCSG, written out: the score function and the ratio of every trajectory."""

    def scores(logits):
        """Σ_t Ψ_t ∇log π(a_t|s_t) of every trajectory [P,S,A]."""
        discounted = runner.rewards * GAMMA ** np.arange(STEPS)
        to_go = np.cumsum(discounted[:, ::-1], 1)[:, ::-1]
        policy, found = random_mdp.softmax(logits), np.zeros((len(to_go), STATES, ACTIONS))
        for path, t in itertools.product(range(len(to_go)), range(STEPS)):
            s, a = runner.states[path, t], runner.actions[path, t]
            found[path, s] -= to_go[path, t] * policy[s]
            found[path, s, a] += to_go[path, t]
        return found

    now = theta
    for _ in range(steps):
        ratio = runner.likelihood(theta) / runner.likelihood(now)
        v = scores(now) - ratio[:, None, None] * scores(theta) + mu
        now = now + LR * np.einsum("p,psa->sa", runner.likelihood(now), v)
    return now


@pytest.mark.parametrize("seed", range(3))
def test_the_servers_steps_are_scsg(seed):
    """Expectation of each step, with a gradient μ that is noisy and one that is exact."""
    runner, draw = Enumerated(seed), np.random.default_rng(seed)
    method = make(FedPGBR, lr=LR)
    method.__dict__["server"] = (runner, {})
    theta = draw.standard_normal((STATES, ACTIONS))
    state = {"theta": {"logits": theta}, "server_seed": 7 + seed, "server_env_steps": 0}
    exact = runner.exact(theta)
    for mu in (exact + 0.1 * draw.standard_normal(theta.shape), exact):
        runner.calls = 0
        moved = method.step(state, {"logits": mu}, 2)
        found = moved["theta"]["logits"]
        np.testing.assert_allclose(found, numpy_scsg(runner, theta, mu, runner.calls), rtol=1e-9)
        assert moved["server_env_steps"] == runner.calls * 4 * STEPS
    climbed = theta  # with the exact μ, what is expected is plain gradient ascent
    for _ in range(runner.calls):
        climbed = climbed + LR * runner.exact(climbed)
    np.testing.assert_allclose(found, climbed, rtol=1e-9)


def test_the_number_of_inner_steps_is_geometric():
    """At least one, and 1 + B/b of them on average: here 2; σ² = 2, so 0.14 are 6 errors."""
    method, runner = make(FedPGBR, trajectories=4, server_trajectories=4), Enumerated()
    method.__dict__["server"] = (runner, {})
    counts = []

    def count(hook, start, params, seeds, own):
        runner.calls += 1
        return {"logits": np.zeros((1, STATES, ACTIONS))}, {"steps": np.array([0])}

    runner.estimate = count
    zero = np.zeros((STATES, ACTIONS))
    state = {"theta": {"logits": zero}, "server_seed": 3, "server_env_steps": 0}
    for number in range(3600):
        runner.calls = 0
        method.step(state, {"logits": zero}, number)
        counts.append(runner.calls)
    assert min(counts) == 1
    assert abs(np.mean(counts) - 2) < 0.15


def test_clients_send_the_gradient_itself():
    with jax.enable_x64(False):
        method = make(FedPGBR, trajectories=4)
        from support.policy_gradients import jobs

        job = jobs(method)[0]
        start = method.start_of([job])
        from fedrl.algorithms.policy_gradient.algorithm import stack

        params = stack([method.world.params([0])])
        seeds = np.array([job.seed], np.uint64)
        found, _ = method.runner.estimate(LocalStep.gradient, start, params, seeds, 4)
        same(method.local(job).update, {"logits": found["logits"][0]})


def test_the_server_has_an_environment_of_its_own():
    """The clients' world with one more: theirs stay as they are."""
    with jax.enable_x64(False):
        method = make(FedPGBR)
        _, params = method.server
        theirs = [method.world.params([c])["kernel"][0] for c in range(3)]
        assert not any(np.array_equal(params["kernel"][0, 0], kernel) for kernel in theirs)
        larger = method.server_world()
        np.testing.assert_array_equal(larger.kernels[:3], method.world.kernels)
        store = played(method, rounds=3)
        assert store.rounds[-1].metrics["server/env_steps"] >= 3 * 4 * 10
        assert (
            seeding.derive(seeding.derive(5, "init"), "server")
            == (store.last.states[0]["server_seed"])
        )


def test_impossible_settings():
    for fields in ({"local_steps": 2}, {"client_steps": (1, 2)}, {"server_trajectories": 0}):
        with pytest.raises(UserError, match=r"algorithm\."):
            FedPGBRSettings(**fields)


def test_a_run_says_that_standardizing_biases_the_correction():
    """The clients' B and the server's b trajectories are scaled apart, each by its own returns."""
    recipe = {"algorithm": {"name": "fedpg-br"}, "world": {"name": "random_mdp", "horizon": 5}}
    assert notes(fedrl.configure(recipe)) == []
    scaled = recipe | {"algorithm": {"name": "fedpg-br", "standardize": True}}
    (line,) = notes(fedrl.configure(scaled))
    assert "biases FedPG-BR's correction" in line
    assert line in fedrl.dry_run(scaled).lines
    pavg = scaled | {"algorithm": {"name": "pavg", "standardize": True}}
    assert notes(fedrl.configure(pavg)) == []
