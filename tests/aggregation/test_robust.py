"""Robust rules equal brute force and Flower's, and no liar moves them beyond their bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.liars import LIES, PER_ATTACKER, RULES, SIZE, drawn, in_order, lies, stream, vector

from fedrl.aggregation import robust, rules
from fedrl.core import tree


@st.composite
def cases(draw, name):
    """Number of updates, of attackers assumed among them, and a seed."""
    byzantine = draw(st.integers(0, 3))
    least = PER_ATTACKER[name] * byzantine + 3
    return draw(st.integers(least, least + 5)), byzantine, draw(st.integers(0, 10**6))


# What the papers say, in loops


def brute_scores(vectors, byzantine):
    count = len(vectors)
    found = []
    for i in range(count):
        apart = sorted(
            sum((x - y) ** 2 for x, y in zip(vectors[i], vectors[j]))
            for j in range(count)
            if j != i
        )
        found.append(sum(apart[: max(1, count - byzantine - 2)]))
    return found


def brute_bulyan(vectors, byzantine):
    left, chosen = [list(v) for v in vectors], []
    count = len(vectors) - 2 * byzantine
    while len(chosen) < count:
        scores = brute_scores(left, byzantine)
        chosen.append(left.pop(scores.index(min(scores))))
    found = []
    for numbers in zip(*chosen):
        middle = float(np.median(numbers))
        near = sorted(numbers, key=lambda x: abs(x - middle))[: count - 2 * byzantine]
        found.append(sum(near) / len(near))
    return found


@settings(max_examples=25, deadline=None)
@given(cases("krum"))
def test_krum_is_the_update_with_the_lowest_score(case):
    count, byzantine, seed = case
    vectors = drawn(seed, count)
    scores = brute_scores(vectors, byzantine)
    found = robust.krum(stream(vectors), byzantine)
    np.testing.assert_array_equal(vector(found), in_order(vectors)[scores.index(min(scores))])


@settings(max_examples=25, deadline=None)
@given(cases("multi-krum"), st.data())
def test_multi_krum_is_the_mean_of_the_lowest(case, data):
    count, byzantine, seed = case
    keep = data.draw(st.integers(0, count - byzantine))
    vectors = drawn(seed, count)
    order = np.argsort(brute_scores(vectors, byzantine))[: keep or count - byzantine - 2]
    expected = in_order(vectors)[order].mean(axis=0)
    found = vector(robust.multi_krum(stream(vectors), byzantine, keep))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    if keep == 1:
        assert np.array_equal(found, vector(robust.krum(stream(vectors), byzantine)))


@settings(max_examples=25, deadline=None)
@given(cases("bulyan"))
def test_bulyan_is_what_its_paper_says(case):
    count, byzantine, seed = case
    vectors = drawn(seed, count)
    found = vector(robust.bulyan(stream(vectors), byzantine))
    expected = brute_bulyan(in_order(vectors), byzantine)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(cases("bulyan"), st.data())
def test_flowers_rules_agree(case, data):
    flower = pytest.importorskip(
        "flwr.server.strategy.aggregate", reason="Flower's rules are the oracle"
    )
    count, f, seed = case
    vectors = drawn(seed, count)
    keep = data.draw(st.integers(1, count - f))
    share = data.draw(st.floats(0, 0.45))
    theirs = {
        "median": flower.aggregate_median,
        "trimmed": lambda said: flower.aggregate_trimmed_avg(said, share),
        "krum": lambda said: flower.aggregate_krum(said, f, to_keep=0),
        "multi-krum": lambda said: flower.aggregate_krum(said, f, to_keep=keep),
        "bulyan": lambda said: flower.aggregate_bulyan(said, f, flower.aggregate_krum, to_keep=0),
    }
    for name, oracle in theirs.items():
        # A new list each time, because their Bulyan empties it; equal weights, which they read.
        said = [([update["b"], update["outer"]["a"]], 1) for update, _ in stream(vectors)]
        expected = np.concatenate([np.ravel(layer) for layer in oracle(said)])
        ours = rules.get(name, trim=share, byzantine=f, keep=keep)(stream(vectors))
        np.testing.assert_allclose(vector(ours), expected, atol=1e-12, err_msg=name)


# Order, ties, precision, dtypes, memory


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(15)), st.integers(0, 1000), st.sampled_from(sorted(RULES)))
def test_it_does_not_matter_who_says_what(order, seed, name):
    """With f = 3, where Bulyan's last choice is not between two that are nearest to each other."""
    vectors = drawn(seed, 15)
    rule = rules.get(name, byzantine=3)
    one, other = (vector(rule(stream(v))) for v in (vectors, vectors[order]))
    np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("name", sorted(RULES))
def test_everybody_agreeing_is_the_result(name):
    vectors = np.repeat(drawn(0, 1), 7, axis=0)
    np.testing.assert_allclose(
        vector(RULES[name](stream(vectors))), in_order(vectors)[0], rtol=1e-15
    )


def test_ties_go_to_the_client_that_comes_first():
    corners = np.zeros((4, SIZE))
    corners[[1, 3], 0] = 1
    corners[[2, 3], 1] = 1  # a square: all scores are equal
    assert np.ptp(robust.scores(robust.distances([{"x": c} for c in corners]), 0)) == 0
    for order in itertools.permutations(range(4)):
        found = robust.krum(stream(corners[list(order)]), 0)
        np.testing.assert_array_equal(vector(found), in_order(corners)[order[0]])


def test_bulyan_takes_the_lower_of_two_that_are_equally_near():
    """Five of seven are chosen, and of these the three nearest to 0, whoever sent them."""
    far = [np.array([0.0, 1000.0]), np.array([0.0, -3000.0])]
    for order in itertools.permutations([-2.0, -1.0, 0.0, 2.0, 9.0]):
        near = [np.array([value, 0.0]) for value in order]
        found = robust.bulyan([({"x": update}, 1.0) for update in (*near, *far)], 1)
        assert found["x"].tolist() == [-1.0, 0.0]


@pytest.mark.parametrize("name", ["krum", "multi-krum", "bulyan"])
def test_what_all_share_does_not_hide_how_they_differ(name):
    """‖x‖² + ‖y‖² − 2xy in place of ‖x − y‖² would have no digit left here."""
    vectors = np.round(drawn(3, 9) * 1024) / 1024
    far = vectors + 2.0**30
    plain, moved = (vector(RULES[name](stream(v))) for v in (vectors, far))
    np.testing.assert_allclose(moved - 2.0**30, plain, atol=1e-6)


@pytest.mark.parametrize("name", sorted(RULES))
def test_dtypes_and_shapes_stay(name):
    updates = [
        ({"outer": {"a": v[:6].astype(np.float32).reshape(2, 3)}, "b": v[6:]}, 1.0)
        for v in drawn(1, 7)
    ]
    found = tree.flatten(RULES[name](updates))
    assert {n: (x.dtype.name, x.shape) for n, x in found.items()} == {
        "outer/a": ("float32", (2, 3)),
        "b": ("float64", (5,)),
    }


@pytest.mark.parametrize("name", sorted(RULES))
def test_blocks_change_nothing(name, monkeypatch):
    updates = stream(drawn(2, 8))
    whole = vector(RULES[name](updates))
    monkeypatch.setattr(robust, "BLOCK", 2)
    np.testing.assert_allclose(vector(RULES[name](updates)), whole, atol=1e-14)


def test_distances_are_over_all_tensors_together():
    updates = [
        {"x": np.array([3.0, 0.0]), "y": np.array(4.0)},
        {"x": np.zeros(2), "y": np.array(0.0)},
    ]
    np.testing.assert_array_equal(robust.distances(updates), [[0, 25], [25, 0]])


def test_a_given_bound_holds_one_update_at_a_time():
    taken = []

    def updates():
        for i in range(5):
            taken.append(i)
            yield {"x": np.full(4, float(i))}, 1.0

    first = next(iter(robust.bounded(updates(), 1.0)))
    assert taken == [0]
    assert first[0]["x"].tolist() == [0.0] * 4


# Breakdown: what f liars can do at most


def mixed(case, kind):
    count, byzantine, seed = case
    rng = np.random.default_rng(seed)
    honest = rng.standard_normal((count - byzantine, SIZE)) + 5
    everybody = np.vstack([honest, lies(kind, honest, byzantine, rng)])
    return honest, everybody[rng.permutation(count)]


def diameter(vectors):
    return max(np.linalg.norm(a - b) for a in vectors for b in vectors)


@settings(max_examples=60, deadline=None)
@given(cases("krum"), LIES)
def test_krum_stays_near_an_honest_client(case, kind):
    """Of a chosen update's n − f − 2 neighbours one is honest, and no honest score exceeds
    (n − f − 2) times the square of the honest diameter."""
    count, byzantine, _ = case
    honest, everybody = mixed(case, kind)
    radius = np.sqrt(count - byzantine - 2) * diameter(honest)
    with np.errstate(over="raise"):  # a lie makes no noise either
        one = vector(robust.krum(stream(everybody), byzantine))
    assert min(np.linalg.norm(one - h) for h in in_order(honest)) <= radius + 1e-9
    several = vector(robust.multi_krum(stream(everybody), byzantine))
    off = np.linalg.norm(several - in_order(honest).mean(axis=0))
    assert off <= radius + diameter(honest) + 1e-9


@settings(max_examples=60, deadline=None)
@given(cases("bulyan"), LIES)
def test_bulyan_stays_near_the_honest_in_every_number(case, kind):
    """The median is theirs, and what is averaged is no farther from it than they are."""
    _, byzantine, _ = case
    honest, everybody = mixed(case, kind)
    found = vector(robust.bulyan(stream(everybody), byzantine))
    low, high = in_order(honest).min(axis=0), in_order(honest).max(axis=0)
    assert np.all(found >= low - (high - low) - 1e-9)
    assert np.all(found <= high + (high - low) + 1e-9)


@settings(max_examples=60, deadline=None)
@given(cases("krum"), LIES, st.floats(0.1, 10))
def test_a_liar_moves_a_bounded_mean_by_its_share_of_the_bound(case, kind, bound):
    count, byzantine, _ = case
    honest, everybody = mixed(case, kind)
    found = vector(robust.norm_bound(stream(everybody), bound))
    assert np.linalg.norm(found) <= bound * (1 + 1e-9)
    cut = [h * min(1, bound / np.linalg.norm(h)) for h in in_order(honest)]
    without = np.sum(cut, axis=0) / count
    assert np.linalg.norm(found - without) <= bound * byzantine / count + 1e-12 * count


@settings(max_examples=30, deadline=None)
@given(cases("krum"), LIES)
def test_the_bound_is_the_median_of_the_norms_if_none_is_given(case, kind):
    honest, everybody = mixed(case, kind)
    with np.errstate(over="ignore"):
        middle = np.median(np.linalg.norm(everybody, axis=1))
    assert robust.norm(stream(honest)[0][0]) == pytest.approx(np.linalg.norm(honest[0]))
    found = robust.norm_bound(stream(everybody))
    expected = robust.norm_bound(stream(everybody), middle)
    np.testing.assert_allclose(vector(found), vector(expected), rtol=1e-9)
    assert middle <= np.linalg.norm(honest, axis=1).max() * (1 + 1e-9)


def test_a_short_update_is_left_as_it_is():
    update = {"x": np.array([0.3, 0.4], np.float32)}
    assert next(iter(robust.bounded([(update, 1.0)], 0.6)))[0] is update
    assert robust.norm_bound([(update, 1.0)] * 3)["x"].tolist() == update["x"].tolist()
    assert robust.norm_bound([({"x": np.zeros(2)}, 1.0)] * 3)["x"].tolist() == [0, 0]
