"""The geometric median of the clients' updates, by Weiszfeld's smoothed iteration.

Paper: "Robust Aggregation for Federated Learning" (Pillutla et al., 2022), Algorithm 2: the point
with the least sum of distances to all updates. Up to half of the clients may lie, and it stays
within a bounded distance of the honest ones'.

    v ← mean x_i; T times: w_i = 1 / max(ν, ‖v − x_i‖), v ← Σ w_i x_i / Σ w_i
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrl.aggregation.rule import Updates, as_update, rule, vectors
from fedrl.core.types import Tensors


@dataclass(frozen=True)
class GeometricMedianSettings:
    """How far the iteration goes."""

    # T: iterations.
    iterations: int = 20
    # ν: distances below this count as this, so that nobody weighs without end.
    smooth: float = 1e-6


@rule(Settings=GeometricMedianSettings, least=3, values=True, by_number=False)
def geometric_median(updates: Updates, iterations: int = 20, smooth: float = 1e-6) -> Tensors:
    """the point with the least sum of distances to all updates"""
    points = vectors(updates)
    middle = points.mean(0)
    for _ in range(iterations):
        weights = 1 / np.maximum(smooth, np.linalg.norm(points - middle, axis=1))
        middle = weights @ points / weights.sum()
    return as_update(middle, updates[0][0])
