"""How a node shows who it is: the headers that Flower's SuperNode signs, and what they allow."""

from __future__ import annotations

from base64 import b64encode

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

AHEAD_SECONDS = float(SYSTEM_TIME_TOLERANCE)
BEHIND_SECONDS = float(TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE)
"""How far a node's clock may be before or after the SuperLink's; beyond, its signature is void."""


def signed_headers(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """Of a request by the node with this key, now."""
    signed = now().isoformat()
    signature = sign_message(key, signed.encode("ascii"))
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(key.public_key())).decode(),
        TIMESTAMP_HEADER: signed,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(signature).decode(),
    }
