"""Real numbers as integers modulo 2³², so that masks are uniform and sums exact.

Every number of an update lies in [-C, C]. The grid's step is chosen from C and the number n of
clients so that n of them fit into 32 signed bits: a sum cannot wrap. Numbers are cut towards zero,
which never makes a vector longer, so the bound C (and with it the sensitivity) holds on the grid.
Without noise the step is a power of two, so that counts, which are whole numbers of one, come out
of the sum as they went in.
"""

from __future__ import annotations

import math

import numpy as np

WORD = np.uint32
HALF = 2**31 - 1
TAIL = 12.0
"""Standard deviations of noise that must fit as well; beyond is less likely than 10⁻³²."""


def step(bound: float, clients: int, deviation: float = 0.0) -> float:
    """Distance of neighbours on the grid. `deviation` is that of the noise of one client."""
    least = (clients * bound + TAIL * math.sqrt(clients) * deviation) / HALF
    return least if deviation else 2.0 ** math.ceil(math.log2(least))


def encode(vector: np.ndarray, bound: float, size: float, noise: np.ndarray | None) -> np.ndarray:
    """A client's words: its numbers on the grid of step `size`, and its noise (also on it)."""
    whole = np.trunc(np.clip(vector, -bound, bound) / size).astype(np.int64)
    if noise is not None:
        whole += np.rint(noise / size).astype(np.int64)
    return whole.astype(WORD)  # modulo 2³²


def decode(total: np.ndarray, size: float) -> np.ndarray:
    """The sum of what clients encoded, as real numbers."""
    return total.astype(WORD).view(np.int32).astype(np.float64) * size
