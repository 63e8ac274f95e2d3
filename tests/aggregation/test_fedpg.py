"""FedPG-Aggregate: who lies together is kept, by the paper's words written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.liars import SIZE, in_order, stream, vector

from fedrl.aggregation import rules
from fedrl.aggregation.fedpg import fedpg_aggregate, kept
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core.types import TooFew, UserError

SIGMA, BATCH, DELTA, ALPHA = 1.0, 16, 0.6, 0.3


def brute_force(x, sigma, batch, delta, alpha):
    """Algorithm 1.1, pair by pair."""
    count = len(x)
    distance = lambda a, b: math.sqrt(sum((p - q) ** 2 for p, q in zip(a, b)))  # noqa: E731
    good = set()
    for within in (2 * sigma * math.sqrt(2 * math.log(2 * count / delta) / batch), 2 * sigma):
        medians = [
            k for k in range(count)
            if sum(distance(x[k], x[j]) <= within for j in range(count)) > count / 2
        ]  # fmt: skip
        good = set()
        if medians:
            middle = [sum(x[k][d] for k in medians) / len(medians) for d in range(len(x[0]))]
            centre = min(medians, key=lambda k: distance(x[k], middle))
            good = {k for k in range(count) if distance(x[k], x[centre]) <= within}
        if good and len(good) >= (1 - alpha) * count - 1e-9:
            return good
    return good


@settings(max_examples=150, deadline=None)
@given(st.integers(3, 9), st.integers(0, 4), st.floats(0.1, 3.0), st.integers(0, 10_000))
def test_the_filter_is_the_papers(count, liars, spread, seed):
    draw = np.random.default_rng(seed)
    x = spread * draw.standard_normal((count, 3))
    x[: min(liars, count)] += 10 * draw.standard_normal(3)
    wanted = brute_force(x.tolist(), SIGMA, BATCH, DELTA, ALPHA)
    if not wanted:
        with pytest.raises(TooFew, match="sigma"):
            kept(x, SIGMA, BATCH, DELTA, ALPHA)
        return
    assert set(np.flatnonzero(kept(x, SIGMA, BATCH, DELTA, ALPHA)).tolist()) == wanted


def test_honest_gradients_are_all_kept():
    x = 0.1 * np.random.default_rng(0).standard_normal((10, 50))
    np.testing.assert_allclose(
        fedpg_aggregate(list(x), SIGMA, BATCH, DELTA, ALPHA), x.mean(0), rtol=1e-12
    )


@pytest.mark.parametrize("lie", [5.0, -40.0, 1e200])
def test_liars_at_a_distance_are_left_out(lie):
    x = 0.1 * np.random.default_rng(1).standard_normal((10, 50))
    x[[2, 5, 7]] += lie
    honest = np.delete(x, [2, 5, 7], 0)
    found = fedpg_aggregate(list(x), SIGMA, BATCH, DELTA, ALPHA)
    np.testing.assert_allclose(found, honest.mean(0), rtol=1e-12)


def test_the_wider_distance_is_for_rounds_that_scatter():
    """Within 2σ of each other, but not within the narrow one that large batches promise."""
    x = np.array([[0.0], [0.9], [-0.9], [1.5]])
    assert kept(x, SIGMA, 1000, DELTA, 0.1).all()
    assert brute_force(x.tolist(), SIGMA, 1000, DELTA, 0.1) == {0, 1, 2, 3}


def test_nobody_to_trust_is_said():
    x = 100.0 * np.eye(4)
    with pytest.raises(TooFew, match="2 sigma"):
        fedpg_aggregate(list(x), SIGMA, BATCH, DELTA, ALPHA)


def test_as_a_rule_it_is_named_by_a_recipe_and_keeps_the_updates_form():
    recipe = {"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}}
    config = resolve(recipe, ["--aggregate.name", "fedpg-br", "--aggregate.sigma", "0.5"])
    x = 0.1 * np.random.default_rng(2).standard_normal((5, SIZE)).astype(np.float32)
    x[3] += 9
    found = rules.build(config.rule, 5)(stream(x))
    honest = in_order(np.delete(x, 3, 0)).mean(0)
    np.testing.assert_allclose(vector(found), honest, rtol=1e-5)
    assert found["b"].dtype == np.float32
    with pytest.raises(TooFew, match="fedpg-br needs 3 updates, and 2 were usable"):
        rules.build(config.rule, 5)(stream(x[:2]))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("sigma=0", "above 0"),
        ("batch=0", "at least 1"),
        ("delta=1", "in .0, 1."),
        ("alpha=0.5", "0.5"),
    ],
)
def test_impossible_settings_are_a_line(setting, words):
    recipe = {"algorithm": {"name": "pavg"}, "world": {"name": "random_mdp"}}
    with pytest.raises(UserError, match=words):
        resolve(recipe, ["--aggregate.name", "fedpg-br", f"--aggregate.{setting}"])


def test_the_filter_is_for_as_many_trajectories_as_a_gradient_has():
    recipe = {
        "algorithm": {"name": "fedpg-br", "trajectories": 64},
        "world": {"name": "random_mdp"},
        "aggregate": {"name": "fedpg-br"},
    }
    with pytest.raises(UserError, match=r"aggregate\.batch is 16.*trajectories = 64: set both"):
        build_algorithm(resolve(recipe))
    build_algorithm(resolve({**recipe, "aggregate": {"name": "fedpg-br", "batch": 64}}))
