"""Random Fourier features: the kernel they stand for, the complex form as a real one, the lanes."""

from __future__ import annotations

import numpy as np
import pytest

from fedrl.algorithms.qhd import encoders as qhd
from fedrl.core.types import UserError

RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(6, 3))


def readout(encoder: qhd.Encoder, actions: int = 2):
    parts = np.random.default_rng(1).normal(size=(2, encoder.features, actions))
    return parts[0] + 1j * parts[1] if encoder.complex else parts[0]


@pytest.mark.parametrize("complex", [False, True])
def test_features_approach_the_gaussian_kernel(complex):
    sigma = 1.7
    encoder = qhd.draw(3, 200_000, sigma, seed=3, complex=complex)
    phi = qhd.features(encoder, STATES)
    distance = ((STATES[:, None] - STATES[None]) ** 2).sum(-1)
    # cos·cos has the mean k/2, and exp(i·)·conj exp(i·) the mean k
    expected = np.exp(-distance / (2 * sigma**2)) * (1.0 if complex else 0.5)
    np.testing.assert_allclose((phi @ phi.conj().T).real, expected, atol=0.01)


def test_no_feature_vector_is_longer_than_one():
    for complex in (False, True):
        encoder = qhd.draw(3, 50, 0.5, seed=0, complex=complex)
        assert np.linalg.norm(qhd.features(encoder, STATES), axis=1).max() <= 1 + 1e-12


def test_the_inner_product_conjugates_the_features():
    """⟨u, v⟩ = uᴴv: with W = Φ(s), Q(s) = ‖Φ(s)‖² = 1, which Re(Φᵀ W) would not give."""
    encoder = qhd.draw(3, 40, 1.0, seed=5, complex=True)
    own = qhd.features(encoder, STATES[:1]).T
    assert qhd.values(encoder, own, STATES[:1])[0, 0] == pytest.approx(1.0)
    assert abs(np.real(own.T @ own)[0, 0]) < 0.9


@pytest.mark.parametrize("complex", [False, True])
def test_lanes_say_the_same_as_the_encoder(complex):
    encoder = qhd.draw(3, 40, 0.8, seed=5, complex=complex)
    weights, lanes = readout(encoder), qhd.lanes(encoder)
    rows = qhd.pack(encoder, weights)
    assert rows.shape == (2, 80 if complex else 40)
    turns = STATES @ lanes.omega.astype(float) + lanes.phase
    seen = lanes.scale * np.cos(2 * np.pi * turns) @ rows.T.astype(float)
    np.testing.assert_allclose(seen, qhd.values(encoder, weights, STATES), atol=2e-5)
    np.testing.assert_allclose(qhd.unpack(encoder, rows), weights, atol=1e-6)


def test_real_design_reads_only_the_real_part():
    encoder = qhd.draw(3, 11, 0.8, seed=5, complex=True)
    weights = readout(encoder)
    rows = qhd.design(encoder, STATES)
    stacked = np.vstack([weights.real, weights.imag])
    np.testing.assert_allclose(qhd.real_design(rows) @ stacked, np.real(rows @ weights))


def test_a_longer_encoder_begins_with_the_shorter_one():
    short, long = qhd.draw(3, 10, 0.8, seed=5), qhd.draw(3, 25, 0.8, seed=5)
    np.testing.assert_array_equal(long.omega[:, :10], short.omega)
    np.testing.assert_array_equal(long.phase[:10], short.phase)
    assert not np.array_equal(short.omega, qhd.draw(3, 10, 0.8, seed=6).omega)


def test_bandwidth_divides_the_frequencies():
    wide, narrow = qhd.draw(3, 10, 2.0, seed=5), qhd.draw(3, 10, 0.5, seed=5)
    np.testing.assert_allclose(narrow.omega, 4 * wide.omega, rtol=1e-6)
    assert wide.phase.min() >= 0
    assert wide.phase.max() <= 2 * np.pi


@pytest.mark.parametrize("changes", [{"bandwidth": 0.0}, {"features": 0}, {"dimension": 0}])
def test_mistakes_are_named(changes):
    with pytest.raises(UserError):
        qhd.draw(**{"dimension": 3, "features": 5, "bandwidth": 1.0, "seed": 0, **changes})
