"""What a dealer says beforehand of its shares, so that a wrong one is found out, and whose it is.

With its letters a dealer gives the server a SHA-256 of every share, and one of its seed. A holder
gets those of its own shares with the letter and keeps no share that does not fit, so one that
reveals a share that does not fit lies; and if shares that all fit do not give the secret, the
dealer does.

They tell nothing of a secret: without t shares of it, any other share is one of about 2²⁵⁶ equally
likely numbers (so is a seed), too many to try, and each hash is of another kind, dealer and holder.
"""

from __future__ import annotations

import hashlib

SIZE = 32
"""Bytes of one commitment; a holder has two, of the shares of a seed and of a mask key."""


def to_share(kind: str, dealer: int, holder: int, share: bytes) -> bytes:
    """`kind` is "seed" or "key"."""
    return _digest(kind.encode() + _number(dealer) + _number(holder) + share)


def to_shares(dealer: int, holder: int, seed: bytes, key: bytes) -> bytes:
    """Both of one holder."""
    return to_share("seed", dealer, holder, seed) + to_share("key", dealer, holder, key)


def to_seed(dealer: int, seed: bytes) -> bytes:
    """A mask key needs none: its public key is known."""
    return _digest(b"whole seed" + _number(dealer) + seed)


def _number(client: int) -> bytes:
    return client.to_bytes(4, "big")


def _digest(statement: bytes) -> bytes:
    return hashlib.sha256(b"fedrl secure sum/" + statement).digest()
