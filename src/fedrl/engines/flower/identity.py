"""Signed keys of secure sums: who is in a sum is a member, and its keys are its own.

A driver that follows the protocol hands out the keys that clients have advertised. One that does
not could hand out keys of its own in their place, or invent clients, and so open what is hidden
from it. Therefore a node signs its fresh keys with its long-term key, by which the SuperLink knows
it; and a node that has its peers' public keys (`--peers`) takes part in no sum with other keys.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedrl.privacy.secure.protocol import Keys, ProtocolError
from fedrl.types import UserError

HALF = 48
SIGNATURE = 2 * HALF
"""Bytes: the two numbers of an ECDSA signature on the curve P-384."""
PEER = re.compile(r"client-(0|[1-9]\d*)\.pub")
SCHEME = ec.ECDSA(hashes.SHA384())


@dataclass(frozen=True)
class Identity:
    """A node's own long-term key, and its peers' by their numbers; None believes everybody."""

    key: ec.EllipticCurvePrivateKey | None = None
    peers: Mapping[int, ec.EllipticCurvePublicKey] | None = None

    def sign(self, exchange: str, number: int, keys: Keys) -> bytes:
        """Without a key any bytes: who checks signatures does not believe them."""
        if self.key is None:
            return secrets.token_bytes(SIGNATURE)
        r, s = decode_dss_signature(self.key.sign(_statement(exchange, number, keys), SCHEME))
        return r.to_bytes(HALF, "big") + s.to_bytes(HALF, "big")

    def check(self, exchange: str, number: int, keys: Keys, signature: bytes) -> None:
        """Whether these are keys that the peer of this number made for this sum."""
        if self.peers is None:
            return
        if number not in self.peers:
            raise ProtocolError(f"client {number} is none of this node's peers")
        numbers = (int.from_bytes(part, "big") for part in (signature[:HALF], signature[HALF:]))
        try:
            self.peers[number].verify(
                encode_dss_signature(*numbers), _statement(exchange, number, keys), SCHEME
            )
        except InvalidSignature as error:
            raise ProtocolError(f"the keys of client {number} are not signed by it") from error


def _statement(exchange: str, number: int, keys: Keys) -> bytes:
    """All of fixed length but the sum's name, which is last: no two say the same."""
    return b"fedrl secure sum" + number.to_bytes(4, "big") + b"".join(keys) + exchange.encode()


def load(key: Path | None, peers: Path | None) -> Identity:
    """A node's private key, and a folder with `client-N.pub` of everybody it takes part with."""
    own = None if key is None else _private(key)
    if peers is None:
        return Identity(own)
    named = {path: PEER.fullmatch(path.name) for path in sorted(peers.glob("*.pub"))}
    if not named or not all(named.values()):
        wrong = [path.name for path, match in named.items() if match is None]
        what = f"has {', '.join(wrong)}" if wrong else "has none"
        raise UserError(f"--peers {peers} must hold files client-0.pub, client-1.pub, …; it {what}")
    known = {int(match[1]): _public(path) for path, match in named.items() if match}
    return Identity(own, known)


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    found = _read(path, lambda data: load_ssh_private_key(data, None))
    if not isinstance(found, ec.EllipticCurvePrivateKey) or found.curve.key_size != 8 * HALF:
        raise _other_kind(path)
    return found


def _public(path: Path) -> ec.EllipticCurvePublicKey:
    found = _read(path, load_ssh_public_key)
    if not isinstance(found, ec.EllipticCurvePublicKey) or found.curve.key_size != 8 * HALF:
        raise _other_kind(path)
    return found


def _read(path: Path, load: Callable[[bytes], Any]) -> Any:
    try:
        return load(path.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} cannot be read as a key of `fedrl flower keys node`") from error


def _other_kind(path: Path) -> UserError:
    return UserError(f"{path} is a key of another kind than `fedrl flower keys node` makes")
