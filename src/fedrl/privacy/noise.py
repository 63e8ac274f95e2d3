"""Gaussian noise, and the sum that it protects.

    mean = (Σ_i shorten(Δ_i, C) + N(0, (zC)²)) / M

M is the number of clients that were asked, not of those that answered: the result then depends on
the clients' data through the noisy sum only. A client that failed counts as one without a change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import numpy as np

from fedrl.core import seeding

Normal = Callable[[int], np.ndarray]
"""`draw(size)`: that many independent standard normal numbers."""


def from_system(size: int) -> np.ndarray:
    """From the operating system's generator, which nobody can replay (Box and Muller's method)."""
    half = (size + 1) // 2
    words = np.frombuffer(os.urandom(16 * half), np.uint64).reshape(2, half)
    # In (0, 1): 53 bits and a half, so that the logarithm is finite.
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[0])), 2 * np.pi * uniform[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def source(seeded: bool, seed: int, purpose: str, round: int = 0) -> Normal:
    """The run's seed for simulations, else the operating system."""
    if not seeded:
        return from_system
    return seeding.generator(seed, purpose, round).standard_normal


def noisy_mean(
    vectors: Iterable[np.ndarray], size: int, asked: int, deviation: float, draw: Normal
) -> np.ndarray:
    """The noisy sum of vectors that are no longer than the bound, divided by M = `asked`."""
    total = np.zeros(size)
    for vector in vectors:
        total += vector
    return (total + deviation * draw(size)) / asked
