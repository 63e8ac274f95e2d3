"""Confidence intervals: of a mean over seeds, and of a share."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@cache
def t_quantile(freedom: int, level: float = 0.95) -> float:
    """The t with P(|T| <= t) = `level` for Student's T with `freedom` degrees of freedom.

    Bisection on the finite series for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and
    26.7.4), with t = sqrt(freedom) * tan(angle): exact to rounding, and a test holds it to scipy's.
    Scipy for this one number would more than double a bare install.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _t_coverage(angle, freedom) < level:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan(low)


def _t_coverage(angle: float, freedom: int) -> float:
    odd = freedom % 2
    cosine = math.cos(angle)
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(freedom // 2):
        total += term
        term *= cosine**2 * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    series = math.sin(angle) * total
    return 2 / math.pi * (angle + series) if odd else series


def interval(samples: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Mean over the first axis (seeds) and the half width of its t interval; NaN for one sample.

    A NaN among the samples makes the result NaN: a mean over the seeds that survived would flatter.
    """
    values = np.asarray(samples, dtype=float)
    values = np.where(np.isfinite(values), values, np.nan)
    count = len(values)
    mean = values.mean(axis=0)
    if count < 2:
        return mean, np.full_like(mean, np.nan)[()]
    error = values.std(axis=0, ddof=1) / math.sqrt(count)
    return mean, t_quantile(count - 1, level) * error


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95% interval of a share that was found in `count` tries.

    Wilson's: unlike share ± 1.96 standard errors it has a width where all or nothing was won.
    """
    z = 1.96
    scale = 1 + z**2 / count
    centre = (share + z**2 / (2 * count)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)
