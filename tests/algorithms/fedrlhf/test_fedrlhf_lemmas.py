"""Lemmas 4.1 and 4.2 and Theorem 4.2: by enumeration, by their formulas, and along a run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedrl.algorithms.fedrlhf.ratings import bound, lemmas
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF, Settings
from fedrl.algorithms.fedrlhf.ratings.bound import Constants
from fedrl.envs.movielens import world as movielens
from fedrl.envs.movielens.world import World
from reproductions.fedrlhf.bandit import Bandit, asked_for, enumerated, outcomes

KNOWN = Constants(4.0, 0.5, 3.0, 2.0, 1.5, 0.25, clients=8, steps=3)
"""L, μ, G, σ, the first gap and λ H_max."""


def test_the_numbers_are_those_of_the_paper():
    far = KNOWN.lr * 3  # ητ = 1/L
    assert far == pytest.approx(1 / 4)
    assert lemmas.distance_bound(KNOWN) == pytest.approx(far**2 * 13)
    noise = 4 / 2 * far**2 / 8 * 13
    assert lemmas.least_gain(KNOWN, 2.0) == pytest.approx(far * 0.5 * 2 - noise - 0.25)
    drift = 16 * KNOWN.lr**2 * (2 * 5 / 6) * 13
    assert lemmas.repaired_gain(KNOWN, 2.0) == pytest.approx(far / 2 * (2 - drift) - noise)
    half = KNOWN.lr / 2
    assert lemmas.distance_bound(KNOWN, half) == pytest.approx(far**2 / 4 * 13)
    assert lemmas.least_gain(KNOWN, 2.0, half) == pytest.approx(
        far / 2 * (1 - 4 * far / 4) * 2 - noise / 4 - 0.25
    )
    asked = lemmas.sample_complexity(KNOWN, 0.1)
    assert (asked.rounds, asked.clients) == (360, 390)  # 3·4·1.5/(0.5·0.1), 3·13/(2·0.5·0.1)
    assert asked.feedback == pytest.approx(0.5 * 0.1 / 12)
    assert asked.total == 360 * 390


def test_theorem_4_2_gives_a_third_of_epsilon_to_each_term_of_theorem_4_1():
    epsilon = 0.3
    asked = lemmas.sample_complexity(KNOWN, epsilon)
    there = KNOWN._replace(clients=asked.clients, feedback=asked.feedback)
    path = bound.Path(np.ones(asked.rounds + 1), np.ones(asked.rounds), np.ones(asked.rounds))
    last = bound.bound(there, path)[-1]
    for term in (last.transient, last.noise, last.feedback):
        assert 0.32 * epsilon < term <= epsilon / 3 * (1 + 1e-9)


def test_the_repaired_lemma_summed_up_is_the_repaired_bound():
    """Its gain at 2μ · gap, solved for the gap, is what Theorem 4.1 becomes for T → ∞."""
    path = bound.Path(np.ones(2), np.ones(1), np.ones(1))
    row = bound.bound(KNOWN, path)[0]
    settled = row.noise + row.drift
    assert lemmas.repaired_gain(KNOWN, 2 * KNOWN.pl * settled) == pytest.approx(0, abs=1e-12)


# Enumeration


def drawn(seed: int, clients: int = 2, states: int = 2) -> tuple[Bandit, np.ndarray]:
    random = np.random.default_rng(seed)
    return Bandit(random.uniform(-1, 1, (clients, states))), random.normal(size=states)


def test_outcomes_are_a_distribution_with_the_mean_and_the_spread_of_steps():
    for kind, seed in itertools.product(("softmax", "sine"), range(3)):
        plain, theta = drawn(seed)
        bandit = Bandit(plain.rewards, kind=kind)
        (_, _), (chances, points) = outcomes(bandit, 0, theta, 1, lr=0.1)
        assert chances.sum() == pytest.approx(1)
        mean = chances @ (points - theta) / 0.1
        np.testing.assert_allclose(mean, bandit.gradient(theta, bandit.rewards[0]), atol=1e-12)
        square = chances @ ((points - theta) ** 2).sum(1) / 0.01
        assert square == pytest.approx(float(bandit.moment(theta, bandit.rewards[0])))
        nudge = 1e-6 * np.eye(2)
        slopes = [
            (bandit.value(theta + one, bandit.rewards[0])
             - bandit.value(theta - one, bandit.rewards[0])) / 2e-6
            for one in nudge
        ]  # fmt: skip
        np.testing.assert_allclose(slopes, bandit.gradient(theta, bandit.rewards[0]), atol=1e-8)


def test_the_expected_gain_is_that_of_many_rounds():
    """Two clients with two steps each, drawn 40,000 times."""
    bandit, theta = drawn(5)
    found, random = enumerated(bandit, theta, 2), np.random.default_rng(0)
    lr, total = 1 / (2 * bandit.smoothness), np.zeros((40_000, 2))
    for rewards in bandit.rewards:
        own = np.tile(theta, (len(total), 1))
        for _ in range(2):
            here = random.integers(2, size=len(own))[:, None] == np.arange(2)
            high = bandit.high(own)
            taken = np.where(random.random(own.shape) < high, high, 1 - high)
            own = own + lr * here * rewards * bandit.steep(own) / taken
        total += own / 2
    mean = bandit.rewards.mean(0)
    gains = bandit.value(total, mean) - bandit.value(theta, mean)
    assert abs(gains.mean() - found["gain"]) < 5 * gains.std() / 200


@pytest.mark.parametrize("crowd", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_both_lemmas_hold_repaired_whatever_the_rewards(steps, crowd):
    for seed in range(40):
        found = enumerated(*drawn(seed), steps, crowd)
        assert found["distance"] <= found["distance_bound"] * (1 + 1e-9)
        assert found["gain"] >= found["repaired"] - 1e-9
        if steps == 1:
            assert found["gain"] >= found["paper"] - 1e-9


def test_the_papers_lemma_4_2_fails_when_many_clients_drift():
    """Two kinds of clients whose wishes cancel out: what they gain by drifting is a loss."""
    short = [enumerated(*drawn(seed), 4, crowd=True) for seed in range(40)]
    assert any(found["gain"] < found["paper"] - 1e-4 for found in short)


@pytest.mark.parametrize("steps", [1, 5])
def test_theorem_4_2_reaches_epsilon_where_its_conditions_hold(steps):
    found = asked_for(np.array([0.6, 0.9]), 0.5, steps, seed=0)
    assert found["gap"] < 0.5 * found["epsilon"]  # far below: it asks for much
    assert found["averaged"] < 0.5 * found["epsilon"]
    assert found["samples"] == found["clients"] * found["rounds"] > found["took"] > 0


# Along a run


def built(**settings) -> FedRLHF:
    found = World(movielens.Settings(users=40, movies=60, ratings=30, least=10), 3, 0)
    small = {
        "method": "policy-gradient", "optimizer": "sgd", "local_steps": 4, "embedding": 4,
        "hidden": (8, 6), "rating_queries": 20, "preference_queries": 20,
    }  # fmt: skip
    return FedRLHF(Settings(**(small | settings)), found, [[c] for c in range(3)])


@pytest.mark.slow
def test_a_run_is_looked_at_and_otherwise_as_it_was():
    found = lemmas.measure(built(), 6, 0, (1, 4), 12)
    assert bound.Measured(found.constants, found.rows) == bound.measure(built(), 6, 0)
    assert [look.round for look in found.looks] == [1, 4]
    for look in found.looks:
        assert look.distances.shape == (3, 12)
        assert look.distances.mean(1).max() <= lemmas.distance_bound(found.constants)
        assert look.gains.mean() >= lemmas.repaired_gain(found.constants, look.slope)
        assert look.gains.std() > 0
    first = found.looks[0]
    assert first.slope == pytest.approx(found.rows[0].slope)
