"""The exact δ of the Gaussian mechanism."""

from __future__ import annotations

import math

import pytest
import scipy.integrate
import scipy.stats

accounting_library = pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")


def gaussian_delta(multiplier, epsilon):
    """δ(ε) of a Gaussian mechanism of sensitivity 1 (Balle and Wang 2018, theorem 8)."""
    normal = scipy.stats.norm.cdf
    half, rest = 1 / (2 * multiplier), epsilon * multiplier
    return normal(half - rest) - math.exp(epsilon) * normal(-half - rest)
