"""The ridge solve against its objective, its two forms, and Theorem 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.algorithms.qhd import encoders as rff
from fedrl.algorithms.qhd.ridge import Compiler, residual
from fedrl.core.types import UserError

SHAPES = st.integers(1, 12)


def rows_of(anchors: int, features: int, complex: bool, seed: int):
    parts = np.random.default_rng(seed).normal(size=(2, anchors, features))
    return parts[0] + 1j * parts[1] if complex else parts[0]


def objective(rows, teacher, readout, ridge):
    return (np.abs(np.real(rows @ readout) - teacher) ** 2).sum() + ridge * (
        np.abs(readout) ** 2
    ).sum()


@settings(deadline=None, max_examples=60)
@given(SHAPES, SHAPES, st.booleans(), st.floats(1e-3, 10.0), st.integers(0, 99))
def test_both_closed_forms_are_the_compiled_one(anchors, features, complex, ridge, seed):
    rows = rows_of(anchors, features, complex, seed)
    teacher = np.random.default_rng(seed + 1).normal(size=(anchors, 3))
    adjoint = rows.conj().T
    wide = adjoint @ np.linalg.solve(rows @ adjoint + ridge * np.eye(anchors), teacher)
    tall = np.linalg.solve(adjoint @ rows + ridge * np.eye(features), adjoint @ teacher)
    compiled = Compiler(rows, ridge, hermitian=True).compile(teacher)
    np.testing.assert_allclose(wide, tall, atol=1e-8)
    np.testing.assert_allclose(compiled, tall, atol=1e-8)
    if not complex:
        np.testing.assert_allclose(Compiler(rows, ridge).compile(teacher), tall, atol=1e-8)


@settings(deadline=None, max_examples=60)
@given(SHAPES, SHAPES, st.booleans(), st.floats(1e-3, 10.0), st.integers(0, 99))
def test_the_objective_is_at_its_minimum(anchors, features, complex, ridge, seed):
    """Its gradient, 2 Xᴴ(Re(X W) - Q) + 2λW, is 0; the paper's complex form cannot be lower."""
    rows = rows_of(anchors, features, complex, seed)
    teacher = np.random.default_rng(seed + 1).normal(size=(anchors, 3))
    readout = Compiler(rows, ridge).compile(teacher)
    gradient = rows.conj().T @ (np.real(rows @ readout) - teacher) + ridge * readout
    np.testing.assert_allclose(gradient, 0, atol=1e-8)
    printed = Compiler(rows, ridge, hermitian=True).compile(teacher)
    best = objective(rows, teacher, readout, ridge)
    assert best <= objective(rows, teacher, printed, ridge) * (1 + 1e-9)


@pytest.mark.parametrize("complex", [False, True])
def test_a_teacher_that_the_client_can_represent_comes_back(complex):
    rows = rows_of(20, 6, complex, 0)
    known = rows_of(6, 2, complex, 1)
    compiled = Compiler(rows, 1e-10).compile(np.real(rows @ known))
    np.testing.assert_allclose(compiled, known, atol=1e-8)


def test_the_printed_complex_form_loses_such_a_teacher():
    rows, known = rows_of(20, 6, True, 0), rows_of(6, 2, True, 1)
    teacher = np.real(rows @ known)
    printed = Compiler(rows, 1e-10, hermitian=True).compile(teacher)
    assert np.abs(np.real(rows @ printed) - teacher).max() > 0.1


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.booleans(), st.floats(1e-3, 1.0), st.integers(0, 99))
def test_what_lies_outside_the_span_is_invisible(features, complex, ridge, seed):
    """Theorem 1, also for anchors whose features are linearly dependent."""
    rows = rows_of(30, features, complex, seed)
    rows = np.hstack([rows, rows[:, :1]])
    teacher = np.random.default_rng(seed + 1).normal(size=(30, 2))
    outside = residual(rows, teacher)
    assert np.abs(outside).max() > 1e-3
    compiler = Compiler(rows, ridge)
    np.testing.assert_allclose(compiler.compile(outside), 0, atol=1e-10)
    np.testing.assert_allclose(
        compiler.compile(teacher), compiler.compile(teacher - 7 * outside), atol=1e-9
    )


@pytest.mark.parametrize("complex", [False, True])
def test_without_a_ridge_it_is_invisible_at_other_states_too(complex):
    """Theorem 1 with λ = 0, for random Fourier features and states that are no anchors."""
    encoder = rff.draw(3, 8, 0.7, 4, complex)
    random = np.random.default_rng(1)
    anchors, new = random.normal(size=(60, 3)), random.normal(size=(40, 3))
    rows = rff.design(encoder, anchors)
    teacher = random.normal(size=(60, 2))
    outside = residual(rows, teacher)
    assert np.abs(outside).max() > 0.1
    both = [
        rff.values(encoder, Compiler(rows, 0.0).compile(one), new)
        for one in (teacher, teacher - 7 * outside)
    ]
    np.testing.assert_allclose(*both, atol=1e-6)


def test_shrinkage_of_one_feature():
    """X = [x], Q = [q]: W = x q / (x² + λ)."""
    compiled = Compiler(np.array([[2.0]]), 0.5).compile(np.array([[3.0]]))
    assert compiled[0, 0] == pytest.approx(2 * 3 / 4.5)


def test_mistakes_are_named():
    with pytest.raises(UserError, match="ridge is -1"):
        Compiler(np.ones((2, 2)), -1)
    with pytest.raises(UserError, match="raise ridge"):
        Compiler(np.zeros((3, 2)), 0)
    with pytest.raises(UserError, match="2 anchors"):
        Compiler(np.ones((3, 2)), 1).compile(np.ones((2, 1)))
    with pytest.raises(UserError, match="shape"):
        Compiler(np.ones((0, 2)), 1)
