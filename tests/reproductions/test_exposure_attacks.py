"""The attacks of `fedrl reproduce exposure` on what is known in closed form, or by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fedrl.privacy import accounting
from reproductions.exposure.attacks import (
    auc,
    chance_exposure,
    exposure,
    gaussian_hits,
    hits,
    likelihood_ratios,
)


def test_auc_is_the_share_of_pairs_in_the_right_order():
    random = np.random.default_rng(0)
    for _ in range(20):
        members, others = (random.integers(0, 5, size=n).astype(float) for n in (7, 9))
        pairs = list(itertools.product(members, others))
        expected = np.mean([0.5 * (m == o) + (m > o) for m, o in pairs])
        assert auc(members, others) == pytest.approx(expected)


@pytest.mark.parametrize("apart", [0.0, 0.5, 2.0])
def test_auc_and_hits_of_two_normal_distributions(apart: float):
    """Φ(d/√2), and Φ(Φ⁻¹(α) + d)."""
    random = np.random.default_rng(1)
    members, others = random.normal(apart, size=100_000), random.normal(size=100_000)
    assert auc(members, others) == pytest.approx(stats.norm.cdf(apart / 2**0.5), abs=0.005)
    expected = stats.norm.cdf(stats.norm.ppf(0.01) + apart)
    assert hits(members, others, 0.01) == pytest.approx(expected, abs=0.02)


def test_hits_never_have_more_false_alarms_than_allowed():
    others = np.array([1.0, 1.0, 1.0, 0.0])
    assert (
        hits(np.array([1.0, 2.0]), others, 0.25) == 0.5
    )  # a threshold below 1 takes three of four
    assert hits(np.array([1.0, 2.0]), others, 0.75) == 1.0
    assert hits(np.array([0.0]), np.zeros(10), 0.01) == 0.0  # ties are nobody's


@pytest.mark.parametrize("count", [2, 16, 1000])
def test_exposure_by_enumeration(count: int):
    """log2 n − log2 rank of every rank; of a model that knows nothing, their mean, near log2 e."""
    scores = -np.arange(float(count))
    each = [exposure(scores, place) for place in range(count)]
    assert each[0] == pytest.approx(math.log2(count))
    assert each[-1] == pytest.approx(0.0)
    assert np.mean(each) == pytest.approx(chance_exposure(count))
    assert exposure(np.zeros(count), 0) == pytest.approx(np.mean(each))  # all tied
    if count == 1000:
        assert chance_exposure(count) == pytest.approx(math.log2(math.e), abs=0.01)


def test_exposure_of_a_tie_is_the_mean_over_its_places():
    scores = np.array([3.0, 1.0, 1.0, 0.0])
    assert exposure(scores, 1) == pytest.approx(2 - (math.log2(2) + math.log2(3)) / 2)


# The likelihood ratio


def game(runs: int, records: int, shift: float, noise: float, seed: int = 0):
    """Records with offsets of their own, which nobody but references could know."""
    random = np.random.default_rng(seed)
    member = random.random((runs, records)) < 0.5
    offsets = random.normal(scale=100.0, size=records)
    signs = random.choice([-1.0, 1.0], size=records)
    values = offsets + shift * signs * member + noise * random.normal(size=member.shape)
    return values, member


def judged(values: np.ndarray, member: np.ndarray) -> tuple[float, float]:
    scores = likelihood_ratios(values, member)
    aucs = [auc(s[m], s[~m]) for s, m in zip(scores, member)]
    found = [hits(s[m], s[~m], 0.01) for s, m in zip(scores, member)]
    return float(np.mean(aucs)), float(np.mean(found))


def test_references_find_what_a_plain_threshold_does_not():
    values, member = game(runs=64, records=500, shift=2.0, noise=1.0)
    plain = np.mean([auc(v[m], v[~m]) for v, m in zip(values, member)])
    assert plain == pytest.approx(0.5, abs=0.02)
    best = stats.norm.cdf(2.0 / 2**0.5)  # with infinitely many references
    assert best - 0.02 < judged(values, member)[0] < best + 0.01


def test_where_membership_changes_nothing_nothing_is_found():
    found, early = judged(*game(runs=16, records=1000, shift=0.0, noise=1.0))
    assert found == pytest.approx(0.5, abs=0.02)
    assert early == pytest.approx(0.01, abs=0.01)


def test_where_it_changes_a_number_that_never_varies_everything_is():
    """A row of the linear policy that a client did not train on is 0 to the bit."""
    random = np.random.default_rng(3)
    member = random.random((16, 200)) < 0.5
    values = np.where(member, random.normal(1.0, 0.3, member.shape), 0.0)
    found, early = judged(values, member)
    assert found > 0.99
    assert early > 0.95


def test_of_a_record_without_references_of_both_kinds_the_shift_is_the_average_one():
    """Record 0 was in all references: what it would be without is known from the other records."""
    values = np.array([[1.0, 0.0, 5.0], [3.0, 2.0, 5.1], [3.1, 0.1, 7.0], [3.0, 2.1, 7.1]])
    member = np.array([[False, False, False], [True, True, False], [True, False, True],
                       [True, True, True]])  # fmt: skip
    scores = likelihood_ratios(values, member)
    assert scores[0, 0] < -10
    alone = likelihood_ratios(values[:, :1], member[:, :1])
    assert alone[0, 0] == pytest.approx(0.0)  # where there is no other record, nothing is known


# Against what ε allows


@pytest.mark.parametrize(("noise", "exchanges"), [(1.0, 1), (4.0, 10), (30.0, 20)])
@pytest.mark.parametrize("alarms", [0.001, 0.01, 0.1, 0.5])
def test_the_most_that_noise_allows_is_within_epsilon_and_delta(noise, exchanges, alarms):
    """TPR ≤ e^ε FPR + δ at every δ, and at some δ not far below."""
    pytest.importorskip("dp_accounting", reason="needs the extra privacy")
    most = gaussian_hits(alarms, noise, exchanges)
    bounds = [
        math.exp(min(accounting.full_view(noise, exchanges, delta), 700)) * alarms + delta
        for delta in np.logspace(-9, -0.05, 60)
    ]
    assert all(most <= bound + 1e-9 for bound in bounds)
    assert min(*bounds, 1.0) < most * 1.1 + 0.01


def test_the_attack_on_the_mechanism_itself_stays_within_the_bound():
    """One number of a client that is C or −C, with noise of z C in every exchange: the worst there
    is. References that know the means exactly come close to the most, and none exceeds it."""
    random, noise, exchanges = np.random.default_rng(5), 4.0, 4
    member = random.random((40, 4000)) < 0.5
    sums = np.where(member, 1.0, -1.0) * exchanges
    sums = sums + noise * math.sqrt(exchanges) * random.normal(size=member.shape)
    early = judged(sums, member)[1]
    most = gaussian_hits(0.01, noise, exchanges)
    assert 0.8 * most < early < 1.15 * most  # 80,000 others: the mean is off by a few percent


def test_without_noise_everything_is_allowed():
    assert gaussian_hits(0.01, 0.0, 10) == 1.0
