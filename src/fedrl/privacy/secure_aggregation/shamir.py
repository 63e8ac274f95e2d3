"""Shamir's secret sharing: any t shares give the secret, t - 1 give nothing at all.

A secret of 32 bytes is the value at 0 of a random polynomial of degree t - 1 over the integers
modulo a prime above 2²⁵⁶; holder i has its value at i + 1. Whole secrets in one field element make
this some hundred times faster than shares of 16-byte blocks over GF(2¹²⁸), which counts where one
process plays fifty clients.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

PRIME = 2**256 + 297
"""The smallest prime above 2²⁵⁶."""

SECRET = 32
SHARE = 33
"""Bytes of a secret and of a share."""


def split(secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
    """A share for every holder (numbers from 0, no two alike)."""
    if len(secret) != SECRET or not 1 <= threshold <= len(set(holders)):
        raise ValueError(f"{len(secret)} bytes, {threshold} of {len(holders)}")
    polynomial = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    polynomial.append(int.from_bytes(secret, "big"))
    return {holder: _value(polynomial, holder + 1).to_bytes(SHARE, "big") for holder in holders}


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret, from the shares of the first `threshold` holders."""
    value = _interpolated(shares, threshold, 0)
    if value >> (8 * SECRET):
        raise ValueError("the shares do not belong together")
    return value.to_bytes(SECRET, "big")


def share_of(holder: int, shares: Mapping[int, bytes], threshold: int) -> bytes:
    """What this holder must have been given, from the shares of the first `threshold` others."""
    return _interpolated(shares, threshold, holder + 1).to_bytes(SHARE, "big")


def _interpolated(shares: Mapping[int, bytes], threshold: int, x: int) -> int:
    """The value at x of the polynomial that the first shares lie on."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares, {threshold} needed")
    holders = sorted(shares)[:threshold]
    total = 0
    for i in holders:
        above = below = 1
        for j in holders:
            if j != i:
                above = above * (j + 1 - x) % PRIME
                below = below * (j - i) % PRIME
        total += int.from_bytes(shares[i], "big") * above * pow(below, -1, PRIME)
    return total % PRIME


def _value(polynomial: Sequence[int], x: int) -> int:
    total = 0
    for coefficient in polynomial:  # the constant term comes last
        total = (total * x + coefficient) % PRIME
    return total
