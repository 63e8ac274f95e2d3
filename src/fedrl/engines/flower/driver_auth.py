"""How the driver shows a SuperLink that it knows the secret: a header that signs the request.

    fedrl-driver: TIME DIGEST SIGNATURE
    SIGNATURE = HMAC-SHA256(secret, "fedrl driver PATH TIME DIGEST"), DIGEST = SHA-256 of the body

So a request can be refused before its body is read, and one that was overheard is good for nothing
else and not for long.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time

HEADER = "fedrl-driver"
FORM = re.compile(r"([0-9]{1,12}) ([0-9a-f]{64}) ([0-9a-f]{64})", re.ASCII)
VALID_SECONDS = 300
"""That the two machines' clocks and the way between them may make up, as for Flower's nodes."""


def sign(secret: bytes, path: str, body: bytes) -> str:
    """The header's value."""
    signed = f"{int(time.time())} {hashlib.sha256(body).hexdigest()}"
    return f"{signed} {_signature(secret, path, signed)}"


def digest(secret: bytes, path: str, header: str) -> str | None:
    """The SHA-256 that the body must have, or None: then nobody with the secret has signed it."""
    match = FORM.fullmatch(header)
    if match is None or abs(time.time() - int(match[1])) > VALID_SECONDS:
        return None
    expected = _signature(secret, path, f"{match[1]} {match[2]}")
    return match[2] if hmac.compare_digest(expected, match[3]) else None


def _signature(secret: bytes, path: str, signed: str) -> str:
    return hmac.new(secret, f"fedrl driver {path} {signed}".encode(), hashlib.sha256).hexdigest()
