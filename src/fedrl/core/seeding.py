"""All randomness comes from (run seed, round, client, purpose).

So a run gives the same numbers whatever the engine, the order of clients or the number of restarts,
and no generator has to be carried along or saved.
"""

from __future__ import annotations

import zlib

import numpy as np

SERVER = -1
"""The `client` of draws that belong to no client: cohorts, initial parameters, evaluation."""


def sequence(
    seed: int, purpose: str, round: int = 0, client: int = SERVER
) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, round, client + 1, zlib.crc32(purpose.encode())])


def derive(seed: int, purpose: str, round: int = 0, client: int = SERVER) -> int:
    """A 63-bit integer seed: fits a signed 64-bit field of any message format."""
    word = sequence(seed, purpose, round, client).generate_state(1, np.uint64)[0]
    return int(word) >> 1


def local(seed: int, round: int, attempt: int, client: int) -> int:
    """Of a client's work. Nodes of a secure sum hold the server to it."""
    return derive(seed, f"local/{attempt}", round, client)


def generator(seed: int, purpose: str, round: int = 0, client: int = SERVER) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(sequence(seed, purpose, round, client)))
