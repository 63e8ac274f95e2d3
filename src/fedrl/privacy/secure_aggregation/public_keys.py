"""Files of public keys, `client-N.pub`: a client's, one in each line, the newest last.

As ssh has it in `authorized_keys`: the word behind a key is its owner's name. There is more than
one line while a client changes its key; each of them is this client's, and nobody else's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

NUMBERED = re.compile(r"client-(0|[1-9]\d{0,8})\.pub")
NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
BITS = 384
"""Of the curve of nodes' keys."""


class Malformed(ValueError):
    """A line that is no key of a node."""


class Named(NamedTuple):
    """A public key, and the name that its line has; empty if it has none that can be shown."""

    key: ec.EllipticCurvePublicKey
    name: str


def parse(text: bytes) -> list[Named]:
    """Oldest first; `Malformed` if any line is something else."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith(b"#"):
            continue
        try:
            key = load_ssh_public_key(line)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise Malformed("no public key in the form of ssh") from error
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.key_size != BITS:
            raise Malformed("a key of another kind than `fedrl flower keys node` makes")
        words = line.decode("ascii", "replace").split()
        name = words[2] if len(words) > 2 and NAME.fullmatch(words[2]) else ""
        found.append(Named(key, name))
    return found


def read(path: Path) -> list[Named]:
    return parse(path.read_bytes())


def line(key: ec.EllipticCurvePublicKey, name: str = "") -> bytes:
    """As `parse` reads it."""
    text = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return text + (b" " + name.encode("ascii") if name else b"") + b"\n"


def twice(known: Mapping[int, Sequence[Named]]) -> tuple[int, int] | None:
    """Two clients with one key, if there are such."""
    owners: list[tuple[ec.EllipticCurvePublicKey, int]] = []
    for number in sorted(known):
        for key, _ in known[number]:
            other = next((n for one, n in owners if one == key and n != number), None)
            if other is not None:
                return other, number
            owners.append((key, number))
    return None
