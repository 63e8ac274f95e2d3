"""CoveragePartition: sizes and placement, against enumeration and the Beta law."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.dealt_tasks import made, pool

from fedrl.partition import coverage


@given(
    wanted=st.lists(st.floats(0, 10), min_size=1, max_size=12),
    lowest=st.integers(0, 5),
    room=st.integers(0, 20),
    part=st.floats(0, 1),
)
@settings(max_examples=200, deadline=None)
def test_sizes_sum_exactly_within_bounds_and_keep_their_order(wanted, lowest, room, part):
    highest = lowest + room
    total = len(wanted) * lowest + round(part * len(wanted) * room)
    found = coverage.round_to_sum(np.array(wanted), total, lowest, highest)
    assert found.sum() == total
    assert (found >= lowest).all()
    assert (found <= highest).all()
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(found[order]) >= -1).all()  # equal wishes may differ by the one left over


@pytest.mark.slow
@given(
    weights=st.lists(st.integers(1, 1000), min_size=2, max_size=12),
    total=st.integers(10, 200),
)
@settings(max_examples=100, deadline=None)
def test_rounding_is_largest_remainder_where_no_bound_is_met(weights, total):
    whole = [weight * total // sum(weights) for weight in weights]
    rest = [weight * total % sum(weights) for weight in weights]
    assume(len(set(rest)) == len(rest))  # of equal remainders any may come first
    for index in sorted(range(len(rest)), key=lambda i: -rest[i])[: total - sum(whole)]:
        whole[index] += 1
    found = coverage.round_to_sum(np.array(weights, dtype=float), total, 0, total)
    assert found.tolist() == whole


@pytest.mark.slow
@given(data=st.data(), items=st.integers(1, 12), clients=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_every_feasible_placement_succeeds(data, items, clients, seed):
    """Sizes up to the number of items, clients that need everything among them."""
    counts = np.array(
        data.draw(st.lists(st.integers(0, items), min_size=clients, max_size=clients))
    )
    rows = coverage.place(counts, items, np.random.default_rng(seed))
    assert [len(row) for row in rows] == counts.tolist()
    assert all(len(set(row.tolist())) == len(row) for row in rows)
    held = np.bincount(np.concatenate(rows), minlength=items)
    ratio = counts.sum() / items
    assert set(held.tolist()) <= {math.floor(ratio), math.ceil(ratio)}


def successive(weights: tuple[int, ...], count: int) -> dict[tuple[int, ...], float]:
    """The oracle: the probability of every set that `count` successive draws ∝ weight may give."""
    chance: dict[tuple[int, ...], float] = {}
    some = [index for index, weight in enumerate(weights) if weight]
    for order in itertools.permutations(some, count):
        probability, left = 1.0, sum(weights)
        for index in order:
            probability *= weights[index] / left
            left -= weights[index]
        chosen = tuple(sorted(order))
        chance[chosen] = chance.get(chosen, 0.0) + probability
    return chance


@pytest.mark.slow
def test_clients_are_drawn_in_proportion_to_what_they_need():
    weights = (8, 4, 2, 1, 0)
    rng, first = np.random.default_rng(0), np.empty(5, dtype=np.int64)
    found = Counter(
        tuple(sorted(coverage.draw(np.array(weights), 3, first, rng).tolist()))
        for _ in range(20_000)
    )
    expected = successive(weights, 3)
    assert found.keys() == expected.keys()
    for chosen, chance in expected.items():
        assert found[chosen] / 20_000 == pytest.approx(chance, abs=0.016)


def shared(need: tuple[int, ...], left: int) -> np.ndarray:
    """The oracle: expected tasks that every pair shares, two clients per item, by enumeration."""
    result = np.zeros((len(need), len(need)))
    if left == 0:
        return result
    sure = [k for k, n in enumerate(need) if n == left]
    rest = tuple(0 if k in sure else n for k, n in enumerate(need))
    for others, chance in successive(rest, 2 - len(sure)).items():
        pair = (*sure, *others)
        after = tuple(n - (k in pair) for k, n in enumerate(need))
        here = shared(after, left - 1)
        here[np.ix_(pair, pair)] += 1
        result += chance * here
    return result


@pytest.mark.slow
def test_items_are_placed_as_the_enumerated_process_places_them():
    """No item is special, and clients share as many as successive draws by need make them share."""
    counts, items, times = (5, 4, 3, 2), 7, 6000
    rng = np.random.default_rng(0)
    held = np.zeros((times, len(counts), items))
    for one in held:
        for client, row in enumerate(coverage.place(np.array(counts), items, rng)):
            one[client, row] = 1
    bound = 5 * math.sqrt(0.25 / times)
    every = np.array(counts)[:, None] / items
    assert np.abs(held.mean(0) - every).max() < bound
    together = np.einsum("tki,tji->kj", held, held) / times
    assert np.abs(together - shared(counts, items)).max() < 3 * bound


@pytest.mark.parametrize("xi", [1.0, 4.0, 64.0])
def test_sizes_have_the_mean_and_variance_of_the_beta_law(xi):
    lowest, highest, clients, total = 20, 220, 4000, 4000 * 100
    found = coverage.sizes(clients, total, lowest, highest, xi, 0)
    mu = 80 / 200
    assert found.mean() == 100
    assert found.std() == pytest.approx(200 * math.sqrt(mu * (1 - mu) / (1 + xi)), rel=0.06)


@given(
    r=st.sampled_from([0.29, 0.5, 1.0, 1.7, 2.0, 3.25]),
    xi=st.sampled_from([0.1, 1.0, 256.0]),
    seed=st.integers(0, 999),
)
@settings(max_examples=40, deadline=None)
def test_every_task_lies_in_as_many_clients_as_the_overlap_says(r, xi, seed):
    tasks = pool(100)
    rows = made("coverage", tasks, 10, seed, overlap=r, xi=xi, fewest=2, most=70)
    held = Counter(itertools.chain.from_iterable(rows))
    assert sum(held.values()) == round(math.floor(round(r * 100, 6)))
    assert {held[task.id] for task in tasks} <= {math.floor(r), math.ceil(r)}
    assert all(2 <= len(row) <= 70 for row in rows)
