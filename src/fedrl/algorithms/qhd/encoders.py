"""Random Fourier features of FedQHD: Φ(s) = D^{-1/2} cos(ω·s + b), and Q(s,·) = Re(Φ(s)ᴴ W).

The complex form Φ(s) = D^{-1/2} exp(i(ω·s + b)) is the real form of 2D features in other words:

    Re(Φᴴ w) = D^{-1/2} Σ_j [cos(ω_j·s + b_j) Re w_j + cos(ω_j·s + b_j - π/2) Im w_j],

and a step w ← w + η δ Φ moves Re w_j and Im w_j by the same two cosines. So what computes (kernels,
ridge, federation gap) sees one real form, `Lanes`: D of them, or 2D with the phases b and b - π/2.
`pack` and `unpack` go between W [D, |A|] and the lanes' rows [|A|, D or 2D].

The paper takes ⟨u, v⟩ = uᴴv (conjugate on the left), so Q = Re(Φᴴ W), but stacks anchors as rows
Φ(s)ᵀ and reads Q = Re(X W), which would conjugate nothing. Rows Φ(s)ᴴ make the two agree, and so
does its Gram matrix, G_lj = ⟨Φ(s_l), Φ(s_j)⟩ = (X Xᴴ)_lj; `design` gives these rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.core.types import UserError

Array = NDArray[Any]
"""Real or complex, as the encoder is."""
Single = NDArray[np.float32]

TURN = 2.0 * np.pi


class Encoder(NamedTuple):
    """ω [d, D] and b [D] in float32, the precision that kernels read.

    Rounding ω and b moves an angle by 6e-8 of itself, once and for good: it is another draw of the
    same encoder, not an error, because every user of the encoder sees the same rounded numbers.
    """

    omega: Single
    phase: Single
    complex: bool

    @property
    def features(self) -> int:
        return int(self.phase.size)


class Lanes(NamedTuple):
    """The real form that kernels read: Q(s,a) = scale · Σ_j cos(2π(omega·s + phase)_j) rows[a, j].

    In turns, not radians: the range of a cosine is then reduced by one rounding and one difference.
    """

    omega: Single  # [d, L], L = D or 2D
    phase: Single  # [L]
    scale: float  # D^{-1/2}


def draw(
    dimension: int, features: int, bandwidth: float, seed: int, complex: bool = False
) -> Encoder:
    """ω ~ N(0, σ^{-2} I) [d, D], b ~ U[0, 2π) [D].

    An encoder of more features starts with the columns of a smaller one of the same seed and
    bandwidth.
    """
    if dimension < 1 or features < 1:
        raise UserError(
            f"an encoder of {features} features of {dimension} numbers: both must be at least 1"
        )
    if not (np.isfinite(bandwidth) and bandwidth > 0):
        raise UserError(f"bandwidth is {bandwidth}; it must be a positive number")
    normals = np.random.default_rng([seed, 0]).standard_normal((features, dimension))
    # a stream of its own: after D·d normals, the phases of a prefix would move with D
    turns = np.random.default_rng([seed, 1]).random(features)
    omega = np.ascontiguousarray((normals / bandwidth).T.astype(np.float32))
    return Encoder(omega, (TURN * turns).astype(np.float32), complex)


def features(encoder: Encoder, states: Array) -> Array:
    """Φ(s) as rows [m, D], float64 or complex128: for ridge solves and checks, not for TD steps."""
    angles = np.asarray(states, np.float64) @ encoder.omega.astype(np.float64)
    angles += encoder.phase.astype(np.float64)
    wave = np.exp(1j * angles) if encoder.complex else np.cos(angles)
    return wave / np.sqrt(encoder.features)


def design(encoder: Encoder, states: Array) -> Array:
    """X [m, D] with rows Φ(s)ᴴ: Q = Re(X W)."""
    return np.conj(features(encoder, states))


def values(encoder: Encoder, readout: Array, states: Array) -> Array:
    """Q [m, |A|] = Re(Φ(s)ᴴ W) for W [D, |A|]."""
    return np.real(design(encoder, states) @ readout)


def real_design(rows: Array) -> Array:
    """Z with Re(X W) = Z V for V = [Re W; Im W]: X itself, or [Re X, -Im X] of a complex one."""
    return np.hstack([rows.real, -rows.imag]) if np.iscomplexobj(rows) else rows


def lanes(encoder: Encoder) -> Lanes:
    """The encoder as kernels read it."""
    # divided in float64: float32 would round the angles a second time
    omega = encoder.omega.astype(np.float64) / TURN
    phase = encoder.phase.astype(np.float64) / TURN
    if encoder.complex:
        omega, phase = np.hstack([omega, omega]), np.hstack([phase, phase - 0.25])
    single = np.ascontiguousarray(omega, np.float32), np.ascontiguousarray(phase, np.float32)
    return Lanes(*single, encoder.features**-0.5)


def pack(encoder: Encoder, readout: Array) -> Single:
    """W [D, |A|] as the kernels' rows [|A|, L] in float32."""
    both = np.vstack([readout.real, readout.imag]) if encoder.complex else readout
    return np.ascontiguousarray(both.T, np.float32)


def unpack(encoder: Encoder, rows: Single) -> Array:
    """The kernels' rows [|A|, L] as W [D, |A|]."""
    if not encoder.complex:
        return np.ascontiguousarray(rows.T)
    count = encoder.features
    return np.ascontiguousarray((rows[:, :count] + 1j * rows[:, count:]).T)
