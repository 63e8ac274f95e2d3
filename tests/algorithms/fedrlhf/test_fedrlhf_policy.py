"""REINFORCE as FedRLHF's local method: its gradients by enumeration and autograd, its settings."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import zlib

import numpy as np
import pytest

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings import policy as reinforce
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF, Settings
from fedrl.cli import call
from fedrl.core import seeding
from fedrl.core.types import Job, Tensors, UserError
from fedrl.envs.movielens import world as movielens
from fedrl.envs.movielens.world import World
from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback import rating_network as network
from fedrl.feedback.rating_kernels import Examples, Rules, Sizes

SIZES = Sizes(users=2, movies=5, embedding=3, genres=4, first=6, second=5, outputs=2)
RULES = Rules(batch=4, lr=0.05, temperature=0.7)
WORLD = movielens.Settings(users=40, movies=120, ratings=50, least=10)
CLIENTS = 4


def bandit(count: int, seed: int = 0) -> tuple[np.ndarray, Examples, np.ndarray]:
    """Weights, states and rewards R(s, a) that are no mirror of each other."""
    random = np.random.default_rng(seed)
    weights = network.pack(network.init_weights(SIZES, seed), np.arange(2), np.arange(5))
    weights[: 7 * SIZES.embedding] *= 20
    states = Examples(
        random.integers(0, 2, count),
        random.integers(0, 5, count),
        random.integers(0, 2, (count, 4)).astype(np.float32),
    )
    return weights, states, random.normal(size=(count, 2)).astype(np.float32)


def sampled(weights, states, rewards, chances) -> np.ndarray:
    """The kernel's gradient of −mean R log π, actions by `chances`."""
    work = kernels.scratch(SIZES, len(states.user), np.zeros_like(weights))
    work.picks[:] = np.arange(len(states.user))
    kernels.forward(weights, SIZES, states, work)
    reinforce.reinforce_slopes(work, rewards, chances, RULES)
    kernels.backward(weights, SIZES, states, work)
    return work.gradient


def chance_of_high(weights, states) -> np.ndarray:
    out = kernels.part_outputs(weights, SIZES, states).astype(np.float64)
    return 1 / (1 + np.exp((out[:, 0] - out[:, 1]) / RULES.temperature))


def enumerated(weights, states, rewards):
    """Every way to act in these states: its probability and the kernel's gradient."""
    high = chance_of_high(weights, states)
    for actions in itertools.product((0, 1), repeat=len(high)):
        chosen = np.array(actions)
        probability = np.where(chosen == 1, high, 1 - high).prod()
        # Below any chance is "high", above all of them is "not high".
        yield probability, sampled(weights, states, rewards, np.where(chosen == 1, -1.0, 2.0))


def log_policy(torch, vector, states):
    """log π [n, 2], written with torch."""
    d = 2 * SIZES.embedding + SIZES.genres
    shapes = [
        (2, 3), (5, 3), (d, SIZES.first), (SIZES.first,), (SIZES.first, SIZES.second),
        (SIZES.second,), (2, SIZES.second), (2,),
    ]  # fmt: skip
    parts = torch.split(vector, [int(np.prod(shape)) for shape in shapes])
    users, movies, w1, b1, w2, b2, w3, b3 = (p.view(s) for p, s in zip(parts, shapes))
    genres = torch.as_tensor(states.genres)
    x = torch.cat([users[states.user], movies[states.movie], genres], 1)
    out = torch.relu(torch.relu(x @ w1 + b1) @ w2 + b2) @ w3.T + b3
    return torch.log_softmax(out / RULES.temperature, 1)


@pytest.mark.slow
def test_the_gradient_is_that_of_autograd():
    torch = pytest.importorskip("torch", reason="autograd is the oracle")
    weights, states, rewards = bandit(9)
    chances = np.random.default_rng(1).random(9)
    action = (chances < chance_of_high(weights, states)).astype(int)
    assert set(action) == {0, 1}
    vector = torch.tensor(weights, requires_grad=True)
    rows = np.arange(9)
    loss = -(torch.tensor(rewards[rows, action]) * log_policy(torch, vector, states)[rows, action])
    loss.mean().backward()
    found = sampled(weights, states, rewards, chances)
    np.testing.assert_allclose(found, vector.grad.numpy(), rtol=1e-3, atol=1e-6)
    assert (found != 0).mean() > 0.5


@pytest.mark.slow
def test_the_expected_gradient_is_that_of_the_expected_reward():
    """REINFORCE is unbiased: over all ways to act, its mean is ∇J, both by kernel and autograd."""
    torch = pytest.importorskip("torch", reason="autograd is the oracle")
    weights, states, rewards = bandit(3)
    mean = sum(p * g.astype(np.float64) for p, g in enumerated(weights, states, rewards))
    exact = np.zeros_like(weights)
    value = reinforce.expected_return(weights, SIZES, states, rewards, RULES, exact)
    np.testing.assert_allclose(mean, exact, rtol=1e-3, atol=1e-7)
    vector = torch.tensor(weights, requires_grad=True)
    expected = (log_policy(torch, vector, states).exp() * torch.tensor(rewards)).sum(1).mean()
    expected.backward()
    assert value == pytest.approx(float(expected.detach()), rel=1e-5)
    np.testing.assert_allclose(exact, -vector.grad.numpy(), rtol=1e-3, atol=1e-7)
    assert np.abs(exact).max() > 1e-3


@pytest.mark.slow
def test_the_spread_is_that_of_single_steps():
    weights, states, rewards = bandit(4)
    found = reinforce.gradient_moments(weights, SIZES, states, rewards, RULES)
    for place in range(4):
        one = Examples(*(column[place : place + 1] for column in states))
        squares = [
            p * float((g.astype(np.float64) ** 2).sum())
            for p, g in enumerated(weights, one, rewards[place : place + 1])
        ]
        assert found[place] == pytest.approx(sum(squares), rel=1e-4)


@pytest.mark.parametrize("high", [0.1, 0.4, 0.8])
def test_with_mirrored_rewards_a_baseline_only_adds_noise(high):
    """What the module's docstring says of π(1 − π); R = 1 for "high", −1 for "not high"."""
    chance = np.array([1 - high, high])
    slope = np.array([-high, 1 - high])  # of log π(a) by the edge
    plain, with_value = (np.array([-1.0, 1.0]) - b for b in (0.0, 2 * high - 1))
    mean = chance @ (plain * slope)
    assert chance @ (with_value * slope) == pytest.approx(mean)
    noise, more = (chance @ (r * slope - mean) ** 2 for r in (plain, with_value))
    x = high * (1 - high)
    assert noise == pytest.approx(x * (1 - 4 * x))
    assert more == pytest.approx(4 * noise)


def steps_of(optimizer, torch, vector, states, rewards, order, chances) -> None:
    """The loop by torch: minibatches of 4 in the same order, actions by the same chances."""
    for start in range(0, order.size, 4):
        rows = order.ravel()[start : start + 4]
        part = Examples(*(column[rows] for column in states))
        log = log_policy(torch, vector, part)
        high = log[:, 1].exp().detach().numpy()
        action = (chances.ravel()[start : start + 4] < high).astype(int)
        paid = torch.tensor(rewards[rows, action])
        optimizer.zero_grad()
        (-(paid * log[np.arange(len(rows)), action]).mean()).backward()
        optimizer.step()


@pytest.mark.parametrize("plain", [True, False])
def test_steps_are_those_of_the_usual_optimizers(plain):
    torch = pytest.importorskip("torch", reason="its optimizers are the oracle")
    weights, states, rewards = bandit(8)
    random = np.random.default_rng(5)
    order, chances = random.integers(0, 8, (2, 10)), random.random((2, 10))
    order[:, 8:] = order[:, :2]
    vector = torch.tensor(weights, requires_grad=True)
    make = torch.optim.SGD if plain else torch.optim.Adam
    optimizer = make([vector], lr=RULES.lr)
    for turn in range(2):  # the last minibatch of each pass has two states
        steps_of(optimizer, torch, vector, states, rewards, order[turn], chances[turn])
    start = weights.copy()
    adam = network.adam_memory(None, weights.size)
    rules = RULES._replace(plain=plain, reinforce=True)
    reinforce.learn(weights, SIZES, states, rewards, order, chances, rules, *adam)
    moved, theirs = weights - start, vector.detach().numpy() - start
    np.testing.assert_allclose(moved, theirs, rtol=1e-2, atol=5e-6 if plain else 5e-5)
    assert np.abs(moved).max() > (5e-3 if plain else 5e-2)


def test_compiled_code_knows_the_kernels_that_are_in_it():
    """numba's cache would not notice that they were changed; what is not cached need not know."""
    said = {"fingerprint": zlib.crc32(inspect.getsource(kernels).encode())}
    assert inspect.getclosurevars(reinforce.learn.py_func).nonlocals == said
    assert reinforce.learn.stats.cache_path is not None
    for compiled in (reinforce.expected_return, reinforce.gradient_moments):
        assert compiled.stats.cache_path is None


# In a federation


def built(**settings) -> FedRLHF:
    found = World(WORLD, CLIENTS, 0)
    settings = {"method": "policy-gradient"} | settings
    return FedRLHF(Settings(**settings), found, [[c] for c in range(CLIENTS)])


def rounds(algorithm: FedRLHF, count: int = 3) -> list[Tensors]:
    """The server's state after every round, from the first one on."""
    states, kept = [algorithm.init(seeding.derive(0, "init"))], {}
    for number in range(1, count + 1):
        sent = algorithm.broadcast(states[-1], number)
        jobs = [
            Job(c, sent, kept.get(c), seeding.derive(0, "local/0", number, c))
            for c in range(CLIENTS)
        ]
        results = algorithm.local_many(jobs)
        mean = aggregate.weighted((result.update, result.weight) for result in results)
        states.append(algorithm.step(states[-1], mean, number))
        kept = {result.client: result.state for result in results}
    return states


def same(one: Tensors, other: Tensors) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in ("user", "movie", "layers"))


def test_without_weight_it_is_plain_federated_policy_gradient_to_the_bit():
    plain, weightless = rounds(built(feedback="none"))[-1], rounds(built(lam=(0.0,)))[-1]
    assert same(plain, weightless)
    assert not same(plain, rounds(built(lam=(0.5,)))[-1])
    assert not same(plain, rounds(built(feedback="none", method="q-learning"))[-1])


def test_policies_come_to_earn_most_of_what_there_is_to_earn():
    algorithm = built(feedback="none", local_epochs=20)
    first, *_, last = rounds(algorithm, 6)
    most = np.mean([np.abs(mine.appeal).mean() for mine in algorithm.client_data])

    def earned(state: Tensors) -> float:
        found = []
        for mine in algorithm.client_data:
            high = algorithm.probability_high(state, algorithm.train_examples(mine))
            found.append((mine.appeal * (2 * high - 1)).mean())
        return float(np.mean(found))

    assert abs(earned(first)) < 0.2 * most
    assert earned(last) > 0.8 * most


def test_local_steps_are_counted_and_independent_of_the_shelf():
    algorithm = built(local_steps=7, batch=3)
    start = algorithm.init(0)
    results = [algorithm.local(Job(c, start, None, 1)) for c in range(CLIENTS)]
    assert {result.metrics["env/steps"] for result in results} == {21.0}
    assert len({result.weight for result in results}) > 1


def test_plain_steps_grow_with_their_size():
    """One plain step is η g: twice η, twice the way."""
    start = built().init(0)
    moves = []
    for lr in (0.01, 0.02):
        algorithm = built(optimizer="sgd", local_steps=1, lr=lr, feedback="none")
        moves.append(algorithm.local(Job(0, start, None, 1)).update["layers"])
    np.testing.assert_allclose(moves[1], 2 * moves[0], rtol=0.02, atol=2e-7)
    assert np.abs(moves[0]).max() > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("method", ["q-learning", "policy-gradient"])
def test_the_average_is_of_what_was_broadcast(method):
    """Algorithm 1's other output; it is evaluated, not sent, and the run is the same."""
    averaging, usual = built(method=method, average=True), built(method=method)
    states, plain = rounds(averaging, 4), rounds(usual, 4)
    assert all(same(a, b) for a, b in zip(states, plain))
    for part in ("user", "movie", "layers"):
        mean = np.mean([state[part] for state in plain[:4]], 0)
        np.testing.assert_allclose(states[-1]["average"][part], mean, rtol=1e-4, atol=1e-6)
    assert set(averaging.broadcast(states[-1], 5)) == {"user", "movie", "layers"}
    everybody = [list(range(CLIENTS))]
    told = averaging.evaluate(states[-1:], everybody, 4, 0)
    assert told == usual.evaluate([states[-1]["average"]], everybody, 4, 0)
    assert told["eval/return"] != usual.evaluate(plain[-1:], everybody, 4, 0)["eval/return"]


@pytest.mark.slow
def test_an_averaging_run_resumes(tmp_path):
    """The mean is part of the checkpoint."""
    size = [
        word
        for field in ("users", "movies", "ratings", "least")
        for word in (f"--world.{field}", str(getattr(WORLD, field)))
    ]
    words = [
        "run", "fedrlhf/movielens_paper", *size, "--federation.clients", "3", "--algorithm.average",
        "true", "--algorithm.method", "policy-gradient",
    ]  # fmt: skip

    def last(folder: str) -> str:
        (run,) = (tmp_path / folder).glob("**/metrics.jsonl")
        return run.read_text().splitlines()[-1]

    assert call([*words, "--rounds", "3", "--out", str(tmp_path / "whole")]) == 0
    assert call([*words, "--rounds", "2", "--out", str(tmp_path / "half")]) == 0
    (run,) = (tmp_path / "half").glob("**/metrics.jsonl")
    assert call(["run", "--resume", str(run.parent), "--rounds", "3"]) == 0
    assert last("half") == last("whole")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"method": "q-learning", "optimizer": "sgd"}, 'optimizer is "sgd"'),
        ({"local_steps": -1}, "algorithm.local_steps is -1"),
    ],
)
def test_mistakes_name_their_key(wrong, said):
    with pytest.raises(UserError, match=said):
        built(**wrong)


def test_settings_of_a_run_without_them_are_unchanged():
    """Defaults are Q-learning with Adam in passes, returning θ_T."""
    assert dataclasses.asdict(Settings()).items() >= {
        "method": "q-learning", "optimizer": "adam", "local_steps": 0, "average": False,
    }.items()  # fmt: skip
