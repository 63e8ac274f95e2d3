"""Random numbers that belong to a row and not to its place in a batch.

Philox 4×32-10 (Salmon et al. 2011), as Triton's `tl.rand` computes it: the number of a token is a
function of its row's seed, of how many tokens the row has drawn and of the vocabulary's entry. So a
row says the same whoever stands beside it, whether it waited for the others or not, and nothing is
drawn beforehand and read again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

KEYS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = (0xD2511F53, 0xCD9E8D57)
LOW = 0xFFFFFFFF
SCALE = 4.6566127342e-10
"""The largest whose product with 2³¹ − 1 is below 1 in single precision."""


class Draws(NamedTuple):
    seeds: Tensor  # [rows], int64
    drawn: Tensor  # [rows] tokens that each has drawn


def uniform(draws: Draws, width: int) -> Tensor:
    """In [0, 1), [rows, width]: what `tl.rand` gives, in PyTorch."""
    along = torch.arange(width, device=draws.seeds.device)
    counters = [(draws.drawn[:, None] * width + along) & LOW]
    counters += [torch.zeros_like(counters[0]) for _ in range(3)]
    keys = [(draws.seeds & LOW)[:, None], ((draws.seeds >> 32) & LOW)[:, None]]
    for _ in range(10):
        c0, c1, c2, c3 = counters
        (high_a, low_a), (high_b, low_b) = _product(ROUNDS[0], c0), _product(ROUNDS[1], c2)
        counters = [high_b ^ c1 ^ keys[0], low_b, high_a ^ c3 ^ keys[1], low_a]
        keys = [(key + more) & LOW for key, more in zip(keys, KEYS, strict=True)]
    whole = counters[0]
    signed = torch.where(whole >= 2**31, LOW - whole, whole)  # −x − 1 of a negative x
    return signed.float() * SCALE


def _product(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a · b, both of 32 bits, without leaving 64 bits and their sign."""
    lower, upper = a * (b & 0xFFFF), a * (b >> 16)
    middle = (lower >> 16) + (upper & 0xFFFF)
    high = (upper >> 16) + (middle >> 16)
    return high & LOW, ((middle & 0xFFFF) << 16) | (lower & 0xFFFF)
