"""Signed keys of secure sums: who is in a sum is a member, and its keys are its own.

A driver that follows the protocol hands out the keys that clients have advertised, and tells all of
them the same. One that does not could hand out keys of its own, invent clients, or tell everybody
something else, and so open what is hidden from it. Therefore a node signs its fresh keys, and who
is in the sum, with its long-term key, by which the SuperLink knows it; and a node that has its
peers' public keys (`--peers`) believes nothing else (Bonawitz et al., the variant against active
adversaries).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedrl.core.types import UserError
from fedrl.privacy.secure_aggregation import public_keys
from fedrl.privacy.secure_aggregation.protocol import NO_HISTORY, Keys

HALF = 48
SIGNATURE = 2 * HALF
"""Bytes: the two numbers of an ECDSA signature on the curve P-384."""
PEER = re.compile(r"client-(0|[1-9]\d*)\.pub")
SCHEME = ec.ECDSA(hashes.SHA384())
Key = TypeVar("Key")


@dataclass(frozen=True)
class Identity:
    """A node's own long-term key, and its peers' by their numbers; None believes everybody.

    `older` are keys that peers have still besides, while they change them.
    """

    key: ec.EllipticCurvePrivateKey | None = None
    peers: Mapping[int, ec.EllipticCurvePublicKey] | None = None
    older: Mapping[int, Sequence[ec.EllipticCurvePublicKey]] = field(default_factory=dict)

    def sign(self, statement: bytes) -> bytes:
        """Without a key any bytes: who checks signatures does not believe them."""
        if self.key is None:
            return secrets.token_bytes(SIGNATURE)
        r, s = decode_dss_signature(self.key.sign(statement, SCHEME))
        return r.to_bytes(HALF, "big") + s.to_bytes(HALF, "big")

    def believes(self, number: int, statement: bytes, signature: bytes) -> bool:
        """Whether the peer of this number has signed it."""
        if self.peers is None:
            return True
        if number not in self.peers:
            return False
        keys = (self.peers[number], *self.older.get(number, ()))
        return any(holds(key, statement, signature) for key in keys)


def holds(key: ec.EllipticCurvePublicKey, statement: bytes, signature: bytes) -> bool:
    r, s = (int.from_bytes(part, "big") for part in (signature[:HALF], signature[HALF:]))
    try:
        key.verify(encode_dss_signature(r, s), statement, SCHEME)
    except InvalidSignature:
        return False
    return True


class Signers:
    """The driver's look at the signatures of one sum; nobody is in it under two numbers."""

    def __init__(self) -> None:
        self._keys: dict[int, ec.EllipticCurvePublicKey] = {}

    def doubt(
        self, client: int, key: ec.EllipticCurvePublicKey, statement: bytes, signature: bytes
    ) -> str:
        """What is wrong, if anything. `key` is that of the client's node at the SuperLink."""
        if not holds(key, statement, signature):
            return "keys that its node has not signed for this job"
        for other, theirs in self._keys.items():
            if theirs == key:
                return f"two numbers with one key: its node's is that of client {other}"
        self._keys[client] = key
        return ""


def about_keys(
    exchange: str, number: int, keys: Keys, job: bytes, history: bytes = NO_HISTORY
) -> bytes:
    """That these are a client's keys for one sum. `job` is a digest of what all were asked to do:
    of updates that differ in nothing but one client's data, only one would be in the sum. `history`
    is that of the state it starts from."""
    about = _name(exchange) + number.to_bytes(4, "big") + b"".join(keys)
    return b"keys" + about + job + history


def about_survivors(exchange: str, survivors: Collection[int]) -> bytes:
    """That these, and no others, are in the sum."""
    numbers = b"".join(number.to_bytes(4, "big") for number in sorted(survivors))
    return b"survivors" + _name(exchange) + numbers


def _name(exchange: str) -> bytes:
    """Of known length: the driver makes names up, and no two statements may be the same bytes."""
    name = exchange.encode()
    return b" of a fedrl secure sum" + len(name).to_bytes(4, "big") + name


def load(key: Path | None, peers: Path | None, number: int | None = None) -> Identity:
    """A node's private key, and a folder with `client-N.pub` of everybody it takes part with.

    Nobody has two numbers: one that did would count twice, and twice towards the threshold.
    """
    own = None if key is None else _private(key)
    if peers is None:
        return Identity(own)
    named = {path: PEER.fullmatch(path.name) for path in sorted(peers.glob("*.pub"))}
    if not named or not all(named.values()):
        wrong = [path.name for path, match in named.items() if match is None]
        what = f"has {', '.join(wrong)}" if wrong else "has none"
        raise UserError(f"--peers {peers} must hold files client-0.pub, client-1.pub, …; it {what}")
    known = {int(match[1]): _public(path) for path, match in named.items() if match}
    if (pair := public_keys.twice(known)) is not None:
        raise UserError(
            f"--peers {peers}: client-{pair[0]}.pub and client-{pair[1]}.pub are the same key; "
            "every client has its own: ask both for theirs again"
        )
    if own is not None and number is not None:
        mine = {n for n, keys in known.items() if own.public_key() in [key for key, _ in keys]}
        if mine - {number} or (number in known and not mine):
            whose = f"client {min(mine)}'s" if mine else f"not that of client-{number}.pub"
            raise UserError(
                f"--client {number}: its key {key} is {whose} in --peers {peers}; its peers would "
                "not believe it"
            )
    newest = {n: keys[-1].key for n, keys in known.items()}
    return Identity(own, newest, {n: [key for key, _ in keys[:-1]] for n, keys in known.items()})


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    key = _loaded(path, partial(load_ssh_private_key, password=None))
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size == 8 * HALF:
        return key
    raise _other_kind(path)


def _public(path: Path) -> list[public_keys.Named]:
    if keys := _loaded(path, public_keys.parse):
        return keys
    raise UserError(f"{path} has no key")


def _loaded(path: Path, load: Callable[[bytes], Key]) -> Key:
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise UserError(f"the key {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} cannot be read as a key of `fedrl flower keys node`") from error


def _other_kind(path: Path) -> UserError:
    return UserError(f"{path} is a key of another kind than `fedrl flower keys node` makes")
