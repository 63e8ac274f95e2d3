"""What the two sides of a secure sum agree on: how many must stay, each one's noise, the bound."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")

from fedrl.privacy import Settings, clipping, secure_aggregation
from fedrl.privacy.secure_aggregation import quantise


@pytest.mark.parametrize(
    ("share", "count", "needed"),
    [(0.66, 3, 3), (0.66, 4, 3), (0.66, 50, 33), (1, 5, 5), (0.51, 4, 3), (0.5 + 1e-12, 6, 4)],
)
def test_the_threshold_is_more_than_half_and_three(share, count, needed):
    assert secure_aggregation.threshold(share, count) == needed
    terms = secure_aggregation.Terms.of(
        Settings(clip=1.0, noise=2.0, secure=True, threshold=share), count
    )
    assert terms.needed == needed
    assert terms.deviation == pytest.approx(2 / np.sqrt(needed))


@settings(max_examples=60)
@given(st.integers(3, 9), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9), st.data())
def test_without_noise_no_sum_gives_a_mean_beyond_the_bound(count, words, data):
    """Whatever one client adds, and however few are left to divide by."""
    terms = secure_aggregation.Terms.of(Settings(clip=0.7, secure=True), count)
    added = data.draw(st.integers(terms.needed, count))
    total = np.array(words, np.uint32)
    found = terms.mean(total, added)
    assert np.linalg.norm(found) <= 0.7 * (1 + 1e-12)
    plain = quantise.decode(total, terms.step) / added
    np.testing.assert_allclose(found, clipping.shorten(plain, 0.7))


def test_with_noise_one_client_reaches_what_the_docs_say():
    """A number of the mean ends at C + 12zC/√(nt), also if some are not in the sum."""
    for z, n in ((1.0, 10), (4.0, 3), (4.0, 5)):
        terms = secure_aggregation.Terms.of(Settings(clip=1.5, noise=z, secure=True), n)
        farthest = terms.mean(np.array([2**31 - 1], np.uint32), terms.needed)
        expected = 1.5 * (1 + 12 * z / np.sqrt(n * terms.needed))
        assert farthest == pytest.approx(expected)


def test_noise_in_parts_has_the_deviation_that_is_asked_for():
    """Exactly with as many clients as must stay, and more with more."""
    random = np.random.default_rng(0)
    zeros = np.zeros(20_000)
    for count, factor in ((4, 1.0), (6, np.sqrt(6 / 4))):
        terms = secure_aggregation.Terms(6, 4, 1.0, secure_aggregation.part(2.5, 4))
        found = secure_aggregation.mean([zeros] * count, terms, random.standard_normal) * 6
        assert found.std() == pytest.approx(2.5 * factor, rel=0.03)
        assert scipy.stats.kstest(found / found.std(), "norm").pvalue > 1e-6
