"""ε after so many exchanges, by the accountant of dp-accounting.

Neighbours are two federations that differ in everything that one client holds (replace one; N is
public). Replacing one client moves a sum of vectors of length at most C by up to 2C, so noise of
standard deviation zC is a Gaussian mechanism with multiplier z/2.

- Full view: whoever knows which clients took part (an untrusted server: local noise, or secure
  aggregation) sees a plain Gaussian mechanism in each exchange of a client. T of them are one with
  multiplier z / (2√T), whose ε is exact.
- Amplified: whoever sees only the models of a trusted server does not know who took part. Cohorts
  are drawn with a fixed size and without replacement, for which the accountant has Rényi bounds
  (Wang, Balle and Kasiviswanathan 2019). Where these are worse than the full view, that one holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from fedrl.core.registry import missing_extra

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ORDERS = (*(1 + x / 10 for x in range(1, 10)), *range(2, 33), 40, 48, 64, 96, 128, 256)
"""Rényi orders that are tried; the best is an upper bound, whichever are."""

SHARPEST = 1e6
"""1/σ of a Gaussian from which on ε counts as infinite: it is above 10¹¹, and has few digits."""


def default_delta(clients: int) -> float:
    """1 / N^1.1, below the 1 / N that would allow to publish one client's data at random; and no
    more than 10⁻⁵, because for a few organisations that is still far too often."""
    return min(1e-5, float(clients) ** -1.1)


def full_view(noise: float, exchanges: int, delta: float) -> float:
    """ε of one client that took part in `exchanges`, for somebody who knows in which."""
    if exchanges == 0:
        return 0.0
    if noise == 0:
        return math.inf
    accounting = library()
    return float(accounting.get_epsilon_gaussian(noise / (2 * math.sqrt(exchanges)), delta))


def composed_view(noises: Iterable[float], delta: float) -> float:
    """ε of one client that took part with noise z_i each time, for somebody who knows when:
    Gaussians of multipliers z_i/2 are together one, with 1/σ² = Σ (2/z_i)²."""
    known = list(noises)
    if 0 in known:
        return math.inf
    sharpness = math.hypot(*(2 / noise for noise in known))
    if not sharpness or sharpness > SHARPEST:
        return math.inf if sharpness else 0.0
    return float(library().get_epsilon_gaussian(1 / sharpness, delta))


def amplified(noise: float, exchanges: int, delta: float, clients: int, cohort: int) -> float:
    """ε for somebody who does not know the cohorts of M of N clients."""
    plain = full_view(noise, exchanges, delta)
    if exchanges == 0 or noise == 0 or cohort >= clients:
        return plain
    return min(plain, composed(_sampled(noise, clients, cohort), exchanges, delta))


def composed(event: DpEvent, count: int, delta: float, relation: str = "REPLACE_ONE") -> float:
    """ε of `count` times `event`: its Rényi divergences add up."""
    from dp_accounting import rdp

    return float(rdp.compute_epsilon(ORDERS, count * _divergences(event, relation), delta)[0])


@lru_cache(16)  # the same event in every round, and a tenth of a second each time
def _divergences(event: DpEvent, relation: str) -> np.ndarray:
    from dp_accounting import NeighboringRelation, rdp

    return rdp.RdpAccountant(ORDERS, NeighboringRelation[relation]).compose(event).rdp


def _sampled(noise: float, clients: int, cohort: int) -> DpEvent:
    accounting = library()
    gaussian = accounting.GaussianDpEvent(noise / 2)
    return accounting.SampledWithoutReplacementDpEvent(clients, cohort, gaussian)


@lru_cache(1)
def library() -> ModuleType:
    """dp-accounting, or which extra to install."""
    try:
        import dp_accounting
    except ModuleNotFoundError as error:
        raise missing_extra(error, "privacy.noise", "privacy") from error
    return dp_accounting
