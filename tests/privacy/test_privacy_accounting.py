"""ε: against published figures, closed forms and a pair of neighbours worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

accounting_library = pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")

from support.gaussian import gaussian_delta

from fedrl.privacy import accounting


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "published"),
    [
        (0.01, 4.0, 10_000, 1.26),  # Abadi et al. 2016, section 3.2, the moments accountant
        (256 / 60_000, 1.3, 15 * 60_000 // 256, 1.19),  # TensorFlow Privacy's MNIST tutorial
        (256 / 60_000, 1.1, 60 * 60_000 // 256, 3.01),
        (256 / 60_000, 0.7, 45 * 60_000 // 256, 7.10),
    ],
)
def test_published_figures_of_poisson_sampling(rate, noise, steps, published):
    """These used ε = Tρ(α) + log(1/δ)/(α - 1); the accountant's own conversion is tighter."""
    delta = 1e-5
    event = accounting_library.PoissonSampledDpEvent(
        rate, accounting_library.GaussianDpEvent(noise)
    )
    orders = np.array(accounting.ORDERS)
    divergences = steps * accounting._divergences(event, "ADD_OR_REMOVE_ONE")
    classic = float(np.min(divergences + math.log(1 / delta) / (orders - 1)))
    assert classic == pytest.approx(published, rel=0.005)
    ours = accounting.composed(event, steps, delta, "ADD_OR_REMOVE_ONE")
    assert 0.7 * published < ours < published


@settings(max_examples=50, deadline=None)
@given(st.floats(0.5, 50), st.integers(1, 500), st.sampled_from([1e-3, 1e-5, 1e-7]))
def test_the_full_view_is_one_gaussian_of_sensitivity_two(noise, exchanges, delta):
    epsilon = accounting.full_view(noise, exchanges, delta)
    if epsilon < 100:  # beyond, exp(ε) times a tail has no digits left
        assert gaussian_delta(noise / 2 / math.sqrt(exchanges), epsilon) == pytest.approx(
            delta, rel=1e-3
        )


def renyi(order, rate, noise):
    """Of two federations in which one client of N has +C or -C and the others have nothing.

    Its coordinate of the noisy sum, in units of C: a mixture, since it takes part with rate M/N.
    """

    normal = scipy.stats.norm.logpdf
    reach = 12 * noise + order
    x = np.linspace(-reach, reach, 200_001)
    with np.errstate(divide="ignore"):
        absent = np.log(1 - rate) + normal(x, 0, noise)
    plus, minus = (
        np.logaddexp(math.log(rate) + normal(x, sign, noise), absent) for sign in (1.0, -1.0)
    )
    integral = scipy.integrate.simpson(np.exp(order * plus + (1 - order) * minus), x=x)
    return math.log(integral) / (order - 1)


@pytest.mark.parametrize("rate", [0.05, 0.5])
@pytest.mark.parametrize("noise", [1.5, 4.0])
@pytest.mark.parametrize("order", [2, 4, 8])
def test_the_bound_covers_a_real_pair_of_neighbours(rate, noise, order):
    bound = accounting._divergences(
        accounting._sampled(noise, 1000, int(1000 * rate)), "REPLACE_ONE"
    )[accounting.ORDERS.index(order)]
    assert renyi(order, rate, noise) <= bound * (1 + 1e-6)


def test_without_sampling_a_pair_of_neighbours_meets_the_bound():
    """All of them take part: +C against -C is the worst there is, so half the noise is not enough
    and twice is too much."""
    event = accounting._sampled(3.0, 10, 10)
    bound = accounting._divergences(event, "REPLACE_ONE")[accounting.ORDERS.index(4)]
    assert renyi(4, 1.0, 3.0) == pytest.approx(bound, rel=1e-6)


@pytest.mark.slow
def test_monotone_in_everything():
    def epsilon(noise=2.0, exchanges=50, delta=1e-4, clients=200, cohort=10):
        return accounting.amplified(noise, exchanges, delta, clients, cohort)

    here = epsilon()
    assert epsilon(exchanges=51) > here > epsilon(exchanges=49)
    assert epsilon(noise=1.9) > here > epsilon(noise=2.1)
    assert epsilon(cohort=12) > here > epsilon(cohort=8)
    assert epsilon(clients=150) > here > epsilon(clients=250)
    assert epsilon(delta=1e-5) > here > epsilon(delta=1e-3)


@pytest.mark.parametrize("cohort", [1, 20, 60, 100])
def test_not_knowing_the_cohort_never_costs_more(cohort):
    amplified = accounting.amplified(2.0, 30, 1e-4, 100, cohort)
    plain = accounting.full_view(2.0, 30, 1e-4)
    assert amplified <= plain
    assert (amplified < plain / 2) == (cohort == 1 or cohort == 20)


def test_edges():
    assert accounting.full_view(1.0, 0, 1e-5) == 0
    assert accounting.amplified(1.0, 0, 1e-5, 10, 2) == 0
    assert accounting.full_view(0.0, 1, 1e-5) == math.inf
    assert accounting.amplified(0.0, 1, 1e-5, 10, 2) == math.inf
    assert accounting.default_delta(10**6) == pytest.approx(10**-6.6)
    assert accounting.default_delta(100) == 1e-5
