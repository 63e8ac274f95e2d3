"""The federation gap of FedQHD, term by term (Theorem 2), for given encoders and anchors.

How far is client i, after compiling the teacher, from the best that its encoder can do, Q̂_i?

    |Δ_i(s,a)| ≤ h̄_i + √m/√(γ_i + λ) · h̄_i + λ/(γ_i + λ) · ‖Ŵ_i‖_F
    h̄_i = Σ_{j≠i} π_j (2B sin θ_ij + ε_i + ε_j)

The theorem lives in a space of functions that contains all clients' and has |f(s)| ≤ ‖f‖. Here it
is the functions on a finite set of states, anchors and held-out ones, with ‖f‖² = Σ_s f(s)². Then
Q̂_i is both the best fit in that norm and, as the paper defines it, in mean square, and every number
is computed, none estimated. The held-out states should outnumber the widest encoder's features, or
its functions are all functions there and its angles and errors are 0.

Three things the paper's proof passes over, and what is done here:

- Readouts that no anchor sees. When the anchors' features do not span the client's (always when
  m < D_i), Ŵ_i has a part that they say nothing about. The proof drops it, and the bound can fail:
  one client alone and λ = 0 give a bound of 0 and a gap. `unseen` is that part's size, exactly.
- Clients that have not learned Q̂_j. The theorem's teacher averages oracles. With readouts given,
  `learning` = ‖P_i Σ_j π_j (Q_j - Q̂_j)‖₂/√(γ_i + λ) on the anchors carries their distance to them.
- Term (I) is not needed: Δ_i = (Q̂_i - its own ridge fit) + (that fit - the compiled teacher), which
  terms (III) and (II) bound. It is reported and added, as in the theorem.

`bound` is the paper's three terms; `bound + unseen + learning` is never exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedrl.algorithms.qhd.encoders import Array, Encoder, design, real_design
from fedrl.algorithms.qhd.ridge import cutoff
from fedrl.core.types import UserError


class Gap(NamedTuple):
    """One client's terms; each a maximum over states and actions."""

    angles: list[Array]  # principal angles with every client, radians, ascending, min(dim) of them
    representation: float  # ε_i = max_a ‖Q* - Q̂_i‖
    gamma: float  # γ_i, smallest positive eigenvalue of the anchors' Gram matrix
    oracle_norm: float  # ‖Ŵ_i‖_F
    mismatch: float  # h̄_i
    heterogeneity: float  # (I)
    amplification: float  # (II)
    shrinkage: float  # (III)
    unseen: float
    learning: float
    measured: float  # max |Q̂_i - compiled|
    warning: str  # empty when there are anchors enough

    @property
    def bound(self) -> float:
        """Theorem 2 as printed."""
        return self.heterogeneity + self.amplification + self.shrinkage

    @property
    def repaired(self) -> float:
        """What the measured gap cannot exceed."""
        return self.bound + self.unseen + self.learning


class _Client(NamedTuple):
    """Real rows Z of all states, an orthonormal basis of their span, and the oracle Q̂ = Z Ŵ."""

    rows: Array  # [m + n, D or 2D]
    basis: Array  # [m + n, rank]
    oracle: Array  # Ŵ [D, |A|]
    values: Array  # Q̂ [m + n, |A|]
    error: float


def federation_gap(
    encoders: Sequence[Encoder],
    anchors: Array,
    held_out: Array,
    reference: Array,
    ridge: float,
    weights: Sequence[float] | None = None,
    readouts: Sequence[Array] | None = None,
) -> list[Gap]:
    """Every term for every client.

    reference: Q* [m + n, |A|] on the anchors, then on the held-out states (of a long run on all
    data, say). weights: π, uniform if not given. readouts: W_i [D_i, |A|] that clients have
    learned; if not given, the teacher averages the oracles, as in the theorem.
    """
    shares = _shares(len(encoders), weights)
    _check(encoders, anchors, held_out, reference, ridge, readouts)
    states = np.concatenate([anchors, held_out])
    clients = [_client(real_design(design(e, states)), reference) for e in encoders]
    m = len(anchors)
    drift = np.zeros_like(reference[:m])
    if readouts is not None:
        for share, encoder, client, learned in zip(shares, encoders, clients, readouts):
            learnt = np.real(design(encoder, anchors) @ learned)
            drift += share * (learnt - client.values[:m])
    size = float(np.linalg.norm(reference, axis=0).max())
    return [
        _gap(i, clients, shares, m, size, drift, ridge, encoders[i]) for i in range(len(clients))
    ]


def _gap(
    index: int,
    clients: list[_Client],
    shares: Array,
    anchors: int,
    size: float,
    drift: Array,
    ridge: float,
    encoder: Encoder,
) -> Gap:
    me = clients[index]
    rows = me.rows[:anchors]
    left, singular, right = _decompose(rows)
    gamma = float(singular.min() ** 2)
    average = sum(share * client.values for share, client in zip(shares, clients))
    teacher = average[:anchors] + drift
    compiled = right.T @ ((singular / (singular**2 + ridge))[:, None] * (left.T @ teacher))
    blind = me.oracle - right.T @ (right @ me.oracle)
    angles = [principal_angles(me.basis, other.basis) for other in clients]
    mismatch = sum(
        float(shares[j])
        * (2 * size * np.sin(angles[j].max(initial=0.0)) + me.error + clients[j].error)
        for j in range(len(clients))
        if j != index
    )
    oracle_norm = float(np.linalg.norm(me.oracle))
    damping = np.sqrt(gamma + ridge)
    return Gap(
        angles=angles,
        representation=me.error,
        gamma=gamma,
        oracle_norm=oracle_norm,
        mismatch=float(mismatch),
        heterogeneity=float(mismatch),
        amplification=float(np.sqrt(anchors) / damping * mismatch),
        shrinkage=0.0 if ridge == 0 else ridge / (gamma + ridge) * oracle_norm,
        unseen=float(np.abs(me.rows @ blind).max()),
        learning=float(np.linalg.norm(left.T @ drift, axis=0).max() / damping),
        measured=float(np.abs(me.values - me.rows @ compiled).max()),
        warning=_warning(index, anchors, len(singular), me.rows.shape[1], encoder),
    )


def _client(rows: Array, reference: Array) -> _Client:
    left, singular, right = _decompose(rows)
    along = left.T @ reference
    values = left @ along
    error = float(np.linalg.norm(reference - values, axis=0).max())
    return _Client(rows, left, right.T @ (along / singular[:, None]), values, error)


def _decompose(rows: Array) -> tuple[Array, Array, Array]:
    """U, s, Vᵀ of the singular values that are more than rounding."""
    left, singular, right = np.linalg.svd(rows, full_matrices=False)
    seen = singular > cutoff(rows, singular)
    return left[:, seen], singular[seen], right[seen]


def principal_angles(basis: Array, other: Array) -> Array:
    """Angles between the spans of two orthonormal bases, ascending, min(dim) of them.

    Small ones come from sines: a cosine near 1 has lost half of its angle's digits.
    """
    if basis.shape[1] < other.shape[1]:
        basis, other = other, basis
    overlap = basis.T @ other
    cosines = np.linalg.svd(overlap, compute_uv=False)
    sines = np.linalg.svd(other - basis @ overlap, compute_uv=False)[::-1]
    angles = np.where(
        cosines**2 > 0.5, np.arcsin(np.clip(sines, 0, 1)), np.arccos(np.clip(cosines, 0, 1))
    )
    return np.sort(angles)


def _warning(index: int, anchors: int, rank: int, needed: int, encoder: Encoder) -> str:
    """What the theorem asks of the anchors, and what to do when they do not give it."""
    if rank == needed:
        return ""
    form = "2·D, because the encoder is complex" if encoder.complex else "D"
    if anchors < needed:
        return (
            f"client {index}: {anchors} anchors cannot fix {needed} weights per action ({form}); "
            f"give at least {needed} anchors, or at most {anchors} weights"
        )
    return (
        f"client {index}: its {anchors} anchors fix {rank} of {needed} weights per action; "
        "give anchors that differ more, a smaller bandwidth, or fewer features"
    )


def _shares(count: int, weights: Sequence[float] | None) -> Array:
    shares = np.full(count, 1.0 / max(count, 1)) if weights is None else np.asarray(weights, float)
    if count == 0 or shares.shape != (count,) or (shares < 0).any() or shares.sum() <= 0:
        raise UserError(f"weights must be {count} numbers, 0 or more, one per client")
    return shares / shares.sum()


def _check(
    encoders: Sequence[Encoder],
    anchors: Array,
    held_out: Array,
    reference: Array,
    ridge: float,
    readouts: Sequence[Array] | None,
) -> None:
    if len(reference) != len(anchors) + len(held_out):
        raise UserError(
            f"reference has {len(reference)} rows; it needs one for each of {len(anchors)} anchors "
            f"and {len(held_out)} held-out states"
        )
    if not (np.isfinite(ridge) and ridge >= 0):
        raise UserError(f"ridge is {ridge}; it must be 0 or more")
    if readouts is not None and len(readouts) != len(encoders):
        raise UserError(f"{len(readouts)} readouts for {len(encoders)} encoders: give one each")
