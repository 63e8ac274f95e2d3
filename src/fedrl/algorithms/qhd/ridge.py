"""Compiling a teacher into a client's readout: one ridge solve per round, factored once per run.

A client whose anchors have the rows X = Φ(s)ᴴ [m, D] takes the W that minimises

    Σ_{l,a} (Re(X W)_la - Q_la)² + λ ‖W‖²_F.

For a real encoder this is the paper's W = (XᴴX + λI)⁻¹ Xᴴ Q = Xᴴ (X Xᴴ + λI)⁻¹ Q. For a complex one
it is not: the paper's closed form minimises ‖X W - Q‖², without the real part, so it also spends W
on making Im(X W) small, which no value ever reads, and when m > D it loses teachers that the client
can represent. Here a complex X is solved as the real rows [Re X, -Im X] that the objective has;
`hermitian=True` is the paper's formula as printed.
"""

from __future__ import annotations

import numpy as np

from fedrl.algorithms.qhd.encoders import Array, real_design
from fedrl.core.types import UserError


class Compiler:
    """`Compiler(X, λ).compile(Q) -> W`; the anchors do not change, so the factor is reused.

    With R the rows that are solved for [m, n], it factors the smaller of R Rᴴ + λI (m ≤ n) and
    RᴴR + λI, by Cholesky. The factor is kept inverted: NumPy has no triangular solve, and a product
    with L⁻¹ is as accurate for a positive definite matrix.
    """

    def __init__(self, rows: Array, ridge: float, hermitian: bool = False) -> None:
        if not (np.isfinite(ridge) and ridge >= 0):
            raise UserError(f"ridge is {ridge}; it must be 0 or more")
        if rows.ndim != 2 or 0 in rows.shape:
            raise UserError(f"anchor features have the shape {rows.shape}; they need [m, D], m > 0")
        self.features = rows.shape[1]
        self.split = np.iscomplexobj(rows) and not hermitian
        self._rows = real_design(rows) if self.split else rows
        anchors, count = self._rows.shape
        self.wide = anchors <= count
        adjoint = self._rows.conj().T
        gram = self._rows @ adjoint if self.wide else adjoint @ self._rows
        gram[np.diag_indices_from(gram)] += ridge
        self._inverse_factor = np.linalg.solve(_factor(gram, ridge), np.eye(len(gram)))

    def compile(self, teacher: Array) -> Array:
        """W [D, |A|] for the teacher's values on the anchors [m, |A|]."""
        if len(teacher) != len(self._rows):
            raise UserError(
                f"the teacher has values on {len(teacher)} anchors, the client {len(self._rows)}"
            )
        adjoint = self._rows.conj().T
        solve = self._solve
        readout = adjoint @ solve(teacher) if self.wide else solve(adjoint @ teacher)
        if self.split:
            return readout[: self.features] + 1j * readout[self.features :]
        return readout

    def _solve(self, right: Array) -> Array:
        return self._inverse_factor.conj().T @ (self._inverse_factor @ right)


def _factor(gram: Array, ridge: float) -> Array:
    try:
        return np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:
        raise UserError(
            f"ridge is {ridge}, too small for these anchors: their Gram matrix has no inverse; "
            "raise ridge, or give anchors that differ more"
        ) from None


def residual(rows: Array, teacher: Array) -> Array:
    """(I - P) Q: the part of the teacher outside the span of the client's anchor features.

    Theorem 1: for every λ, compiling Q and compiling Q - residual give the same W. What a client
    cannot represent on the anchors is lost, but it disturbs nothing else.
    """
    real = real_design(rows)
    left, singular, _ = np.linalg.svd(real, full_matrices=False)
    basis = left[:, singular > cutoff(real, singular)]
    return teacher - basis @ (basis.T @ teacher)


def cutoff(rows: Array, singular: Array) -> float:
    """Singular values up to this are rounding: NumPy's own rule for ranks."""
    return float(max(rows.shape) * np.finfo(rows.dtype).eps * singular.max(initial=0.0))
