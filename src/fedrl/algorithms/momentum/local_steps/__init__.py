"""Local steps of table policies in closed form: a numba kernel instead of traced trajectories.

    tabular_worlds     what `Momentum` asks
    tabular_kernels    the compiled steps
    tabular_sampling   the compiled trajectories
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrl.algorithms.policy_gradient.runners import Stats
from fedrl.core.types import Tensors


class Anchored(NamedTuple):
    """Where a round's local steps start, leaves [B, …]; what β = 1 does not read is ignored."""

    theta: Tensors  # θ_r
    previous: Tensors  # θ_{r-1}
    direction: Tensors  # u_r


@runtime_checkable
class KernelRunner(Protocol):
    """The part of `TabularRunner` that needs neither JAX nor numba to be named."""

    def init(self, seed: int, /) -> Tensors:
        """θ_0 of one policy."""

    def initial_exchange(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, batch: int
    ) -> tuple[Tensors, Stats]:
        """Mean of `batch` gradients g(τ|θ_0) of every pair: the client's part of u_0."""

    def local(self, start: Anchored, params: Tensors, seeds: np.ndarray) -> tuple[Tensors, Stats]:
        """Δ = θ_{r,K} − θ_r of every pair, and what happened on the way."""

    def returns(
        self, theta: Tensors, params: Tensors, seeds: np.ndarray, episodes: int
    ) -> np.ndarray:
        """Exact J [B, 1]."""
