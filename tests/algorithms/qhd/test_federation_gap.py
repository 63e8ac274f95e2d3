"""Theorem 2 on instances where every term can be checked, and on many random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.algorithms.qhd import encoders as qhd
from fedrl.algorithms.qhd.federation_gap import federation_gap, principal_angles
from fedrl.algorithms.qhd.ridge import Compiler
from fedrl.core.types import UserError


def instance(sizes, anchors, held_out, complex, seed, bandwidth=0.7):
    rng = np.random.default_rng(seed)
    encoders = [
        qhd.draw(2, size, bandwidth * rng.uniform(0.5, 1.5), int(rng.integers(2**31)), complex)
        for size in sizes
    ]
    states = rng.uniform(-1, 1, size=(anchors + held_out, 2))
    reference = np.stack([np.sin(3 * states[:, 0]), states[:, 0] * states[:, 1]], 1)
    return encoders, states[:anchors], states[anchors:], reference


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(1, 40),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([0.0, 1e-6, 1e-3, 1.0]),
    st.booleans(),
    st.integers(0, 9999),
)
def test_the_bound_holds(sizes, anchors, held_out, complex, ridge, learned, seed):
    encoders, at, away, reference = instance(sizes, anchors, held_out, complex, seed)
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1, size=len(sizes))
    readouts = [rng.normal(size=(e.features, 2)) for e in encoders] if learned else None
    for gap in federation_gap(encoders, at, away, reference, ridge, weights, readouts):
        # a small γ makes Ŵ long, and rounding grows with it
        rounding = 1e-9 * (1 + gap.repaired) + 1e-10 * gap.oracle_norm
        # without term (I), which the proof does not need
        assert gap.measured <= gap.repaired - gap.heterogeneity + rounding
        if not gap.warning and not learned:
            assert gap.unseen <= rounding
            assert gap.measured <= gap.bound + rounding


def test_the_printed_bound_fails_without_anchors_enough():
    """One client, λ = 0: all three terms are 0, but two anchors do not fix eight weights."""
    encoders, at, away, reference = instance([8], 2, 50, False, seed=1)
    (gap,) = federation_gap(encoders, at, away, reference, ridge=0.0)
    assert gap.bound == 0
    assert gap.measured > 0.1
    assert gap.measured <= gap.repaired + 1e-9
    assert "at least 8 anchors" in gap.warning


@pytest.mark.parametrize("complex", [False, True])
def test_one_encoder_for_all_is_weighted_averaging_in_function_space(complex):
    encoder = qhd.draw(2, 6, 0.4, seed=0, complex=complex)
    rng = np.random.default_rng(0)
    shape = (3, 2, 6, 2)
    parts = rng.normal(size=shape)
    readouts = [p[0] + 1j * p[1] if complex else p[0] for p in parts]
    weights = np.array([0.5, 0.3, 0.2])
    anchors, held_out = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (50, 2))
    teacher = sum(w * qhd.values(encoder, r, anchors) for w, r in zip(weights, readouts))
    compiled = Compiler(qhd.design(encoder, anchors), 1e-12).compile(teacher)
    average = sum(w * r for w, r in zip(weights, readouts))
    np.testing.assert_allclose(
        qhd.values(encoder, compiled, held_out), qhd.values(encoder, average, held_out), atol=1e-6
    )


def test_one_encoder_for_all_leaves_no_gap():
    _, at, away, reference = instance([1], 40, 50, False, seed=3)
    encoders = [qhd.draw(2, 6, 0.4, seed=0)] * 3
    for gap in federation_gap(encoders, at, away, reference, ridge=0.0):
        assert gap.measured < 1e-9
        assert max(angles.max() for angles in gap.angles) < 1e-7
        # the printed h̄ still counts every client's representation error, twice
        assert gap.mismatch == pytest.approx(2 * gap.representation * 2 / 3, rel=1e-6)


def test_one_client_shrinks_as_the_third_term_says():
    """A single feature: Ŵ and its compiled form differ by the factor x²/(x² + λ), exactly."""
    _, at, away, reference = instance([1], 5, 7, False, seed=3)
    encoder = qhd.draw(2, 1, 0.4, seed=0)
    x = qhd.design(encoder, np.concatenate([at, away]))
    (gap,) = federation_gap([encoder], at, away, reference, ridge=0.3)
    gamma = float((x[:5] ** 2).sum())
    oracle = (x.T @ reference) / (x**2).sum()
    assert gap.gamma == pytest.approx(gamma)
    assert gap.oracle_norm == pytest.approx(np.linalg.norm(oracle))
    assert gap.shrinkage == pytest.approx(0.3 / (gamma + 0.3) * np.linalg.norm(oracle))
    assert gap.measured == pytest.approx(0.3 / (gamma + 0.3) * np.abs(x @ oracle).max())
    assert gap.heterogeneity == gap.amplification == gap.unseen == gap.learning == 0
    error = np.linalg.norm(reference - x @ oracle, axis=0).max()
    assert gap.representation == pytest.approx(error)


def test_the_mismatch_of_two_clients_by_hand():
    encoders, at, away, reference = instance([3, 3], 20, 20, False, seed=4)
    gaps = federation_gap(encoders, at, away, reference, ridge=0.1, weights=[1, 3])
    size = np.linalg.norm(reference, axis=0).max()
    angle = gaps[0].angles[1].max()
    error = gaps[0].representation + gaps[1].representation
    expected = 0.75 * (2 * size * np.sin(angle) + error)
    assert gaps[0].mismatch == pytest.approx(expected)
    assert gaps[0].heterogeneity == pytest.approx(expected)
    scale = np.sqrt(20 / (gaps[0].gamma + 0.1))
    assert gaps[0].amplification == pytest.approx(scale * expected)
    np.testing.assert_allclose(gaps[0].angles[1], gaps[1].angles[0], atol=1e-9)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, np.pi / 4, 1.4, np.pi / 2])
def test_principal_angles_of_planes_in_space(angle):
    plane = np.eye(3)[:, :2]
    tilted = np.stack([[1, 0, 0], [0, np.cos(angle), np.sin(angle)]], 1)
    np.testing.assert_allclose(principal_angles(plane, tilted), [0, angle], atol=1e-15)
    line = tilted[:, 1:]
    np.testing.assert_allclose(principal_angles(line, plane), [angle], atol=1e-15)


def test_learning_is_zero_exactly_when_clients_hold_their_oracles():
    encoders, at, away, reference = instance([3, 5], 30, 30, False, seed=6, bandwidth=0.3)
    states = np.concatenate([at, away])
    oracles = [np.linalg.lstsq(qhd.design(e, states), reference)[0] for e in encoders]
    plain = federation_gap(encoders, at, away, reference, 1e-3)
    held = federation_gap(encoders, at, away, reference, 1e-3, readouts=oracles)
    moved = federation_gap(
        encoders, at, away, reference, 1e-3, readouts=[oracles[0], oracles[1] + 1]
    )
    for one, two, three in zip(plain, held, moved):
        assert one.measured == pytest.approx(two.measured, abs=1e-9)
        assert two.learning < 1e-9
        assert three.learning > 0.01


def test_complex_encoders_need_two_anchors_per_feature():
    encoders, at, away, reference = instance([4], 7, 60, True, seed=0, bandwidth=0.3)
    (gap,) = federation_gap(encoders, at, away, reference, 1e-3)
    assert "at least 8 anchors" in gap.warning
    encoders, at, away, reference = instance([4], 30, 60, True, seed=0, bandwidth=0.3)
    assert federation_gap(encoders, at, away, reference, 1e-3)[0].warning == ""


def test_mistakes_are_named():
    encoders, at, away, reference = instance([3], 4, 4, False, seed=0)
    with pytest.raises(UserError, match="reference has 7 rows"):
        federation_gap(encoders, at, away, reference[:7], 0.1)
    with pytest.raises(UserError, match="ridge"):
        federation_gap(encoders, at, away, reference, -0.1)
    with pytest.raises(UserError, match="weights must be 1"):
        federation_gap(encoders, at, away, reference, 0.1, weights=[1, 2])
    with pytest.raises(UserError, match="2 readouts"):
        federation_gap(encoders, at, away, reference, 0.1, readouts=[reference, reference])
