"""Intervals: scipy's quantiles, the coverage they promise, and NaN that is not hidden."""

from __future__ import annotations

import numpy as np
import pytest

from fedrl.core.intervals import interval, t_quantile, wilson


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (30, 2.0423)]
)
def test_t_quantile_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert t_quantile(freedom) == pytest.approx(t, abs=5e-5)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_t_quantile_agrees_with_scipy(level: float) -> None:
    special = pytest.importorskip("scipy.special")
    for freedom in range(1, 60):
        expected = special.stdtrit(freedom, (1 + level) / 2)
        assert t_quantile(freedom, level) == pytest.approx(expected, rel=1e-9)


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    samples = np.random.default_rng(0).normal(3.0, 2.0, size=(5, 20_000))
    mean, half = interval(samples)
    covered = np.mean(np.abs(mean - 3.0) <= half)
    assert covered == pytest.approx(0.95, abs=0.006)  # 4 standard errors of 20,000 draws


def test_interval_of_one_seed_has_no_width_and_nan_is_not_hidden() -> None:
    mean, half = interval([2.0])
    assert mean == 2.0
    assert np.isnan(half)
    assert np.isnan(interval([[1.0, 1.0], [np.inf, 2.0]])[0]).tolist() == [True, False]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("count", [1, 16, 1000])
def test_the_interval_ends_where_the_truth_would_be_1_96_errors_away(
    share: float, count: int
) -> None:
    """Wilson's ends p solve (share − p)² = 1.96² p (1 − p) / count."""
    low, high = wilson(share, count)
    assert 0 <= low <= share <= high <= 1
    assert high - low > 0
    for end in (low, high):
        error = 1.96**2 * end * (1 - end) / count
        assert (share - end) ** 2 == pytest.approx(error, abs=1e-12)
