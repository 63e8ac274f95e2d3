"""The interquartile mean, and an interval of it by the bootstrap.

    IQM    the mean of the middle half of the values: a value at the edge of that half counts in
           part, so that it is defined for any number of them (as scipy's trimmed mean is not)

Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice" (2021),
recommend it beside the mean: one lucky seed moves it less. The interval is of the percentile
bootstrap over seeds. Of few seeds that is too narrow (of three it covers some 75%, not 95%), which
is why it stands beside a t interval and not in its place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrl.core.seeding import generator

RESAMPLES = 2000
FEWEST = 4
"""Seeds of which an interquartile mean is not the mean, or nearly so."""


def iqm(values: ArrayLike) -> NDArray[np.float64]:
    """Over the last axis; NaN where one of the values is."""
    ordered = np.sort(np.asarray(values, dtype=float), axis=-1)
    count = ordered.shape[-1]
    edges = np.arange(count + 1) / count
    inside = np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25)
    weights = np.maximum(inside, 0.0) * 2
    middle = weights > 0  # an infinite value at the edge is no part of it
    found = (ordered[..., middle] * weights[middle]).sum(-1)
    return np.where(np.isnan(ordered).any(-1), np.nan, found)


def bootstrap_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Of the IQM of these values [n]; the same values give the same interval."""
    samples = np.asarray(values, dtype=float)
    if len(samples) < 2 or not np.isfinite(samples).all():
        return float("nan"), float("nan")
    random = generator(0, "bootstrap")
    drawn = samples[random.integers(0, len(samples), (RESAMPLES, len(samples)))]
    tail = 50 * (1 - level)
    low, high = np.percentile(iqm(drawn), [tail, 100 - tail])
    return float(low), float(high)
