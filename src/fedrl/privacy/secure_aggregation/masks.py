"""Keys, masks and sealed letters, all from the package `cryptography`.

X25519 and HKDF-SHA256 agree on keys, AES-256 in counter mode stretches a key into a mask, and
AES-256-GCM seals what clients send each other through the server.
"""

from __future__ import annotations

import os

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE = 12
BLOCK = 16
PIECE = 2**14
NOTHING = memoryview(bytes(4 * PIECE))
"""What a stream of masks is added to, to have the stream itself; a piece stays in the cache."""


def new_secret() -> bytes:
    """32 bytes: a private key, or the seed of a mask."""
    return os.urandom(32)


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, theirs: bytes, purpose: bytes) -> bytes:
    """The key that two clients share for one purpose and no other."""
    mine = X25519PrivateKey.from_private_bytes(private)
    common = mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    return HKDF(hashes.SHA256(), 32, salt=None, info=b"fedrl secure sum/" + purpose).derive(common)


def usable(theirs: bytes) -> bool:
    """Whether a public key can be agreed with: a few points give everybody the same secret."""
    try:
        agree(new_secret(), theirs, b"a try")
    except ValueError:
        return False
    return True


def hide(words: np.ndarray, key: bytes, sign: int = 1) -> None:
    """words ± PRG(key), in place: uniform to whoever does not have the key, which is used once.

    Piece by piece, so that a mask is never in memory as a whole: that takes a fifth of the time.
    """
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    buffer = bytearray(len(NOTHING) + BLOCK - 1)  # as much room as `update_into` insists on
    mask = np.frombuffer(buffer, "<u4", PIECE)
    move = np.add if sign > 0 else np.subtract
    for start in range(0, len(words), PIECE):
        piece = words[start : start + PIECE]
        stream.update_into(NOTHING[: 4 * len(piece)], buffer)
        move(piece, mask[: len(piece)], out=piece)


def seal(key: bytes, letter: bytes, label: bytes) -> bytes:
    """Only who has the key can read or change the letter; `label` says from whom to whom."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, letter, label)


def unseal(key: bytes, sealed: bytes, label: bytes) -> bytes | None:
    """The letter, or nothing where it was tampered with or is somebody else's."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], label)
    except (InvalidTag, ValueError):
        return None
