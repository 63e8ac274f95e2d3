"""Random numbers of compiled code: number n of a seed is splitmix64's, mix(mix(seed) + n·GOLDEN).

So a number depends on nothing but the seed and its position, and all that a generator has to carry
is a count. The functions are inlined into what calls them; code that is cached by numba and calls
them names this file among its sources (`core.numba_cache`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio, odd: its multiples visit every 64-bit number."""

_HALF = np.uint64(32)
_inlined = njit(forceinline=True, error_model="numpy")


@_inlined
def mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_inlined
def uniform(number: np.uint64) -> float:
    """A number in [0, 1)."""
    return float(number >> np.uint64(11)) * 2.0**-53


@_inlined
def below(number: np.uint64, bound: np.uint64) -> np.uint64:
    """A number in [0, bound), bound < 2³²; its bias is below bound / 2³²."""
    return ((number >> _HALF) * bound) >> _HALF
