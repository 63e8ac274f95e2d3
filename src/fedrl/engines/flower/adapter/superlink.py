"""Flower's SuperLink: its web application, what nodes sign, and how a node is registered."""

from __future__ import annotations

import datetime
import sys
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest
from flwr.proto.runtime_pb2 import PushAppMessagesRequest, PushAppMessagesResponse
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.date import now
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.supercore.object_store import object_store_factory
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.superlink.cli.flower_superlink import (
    SuperLinkLifespan,
    _parse_superlink_lifespan_config,
)
from flwr.superlink.main import create_app

from fedrl.engines.flower.adapter.driver import connect
from fedrl.engines.flower.adapter.object_store import SpooledObjectStore
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.superlink_waiting import Announced


def signing_key(headers: Mapping[str, str]) -> bytes | None:
    """The public key that a node claims and has signed the time with, as Flower checks it later."""
    try:
        claimed = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        signed = headers[TIMESTAMP_HEADER].encode("ascii")
        age = (now() - datetime.datetime.fromisoformat(signed.decode())).total_seconds()
        key = bytes_to_public_key(claimed)
    except (KeyError, ValueError, TypeError, OverflowError, UnsupportedAlgorithm):
        return None
    if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
        return None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return None
    return claimed if verify_signature(key, signed, signature) else None


class Application(NamedTuple):
    """The ASGI application of a SuperLink, and what serving it needs to know."""

    app: Callable[..., Awaitable[None]]
    node_of: Callable[[bytes], int]
    log_config: dict[str, object]
    ssl_keyfile: str | None
    ssl_certfile: str | None


def application(options: Sequence[str], spool: Path) -> Application:
    """As `flower-superlink` with these options would make it, with `spool` for large messages."""
    sys.argv = ["flower-superlink", *options]
    config = _parse_superlink_lifespan_config()
    # It makes its one store at once, and of this class unless it is given a database.
    store = partial(SpooledObjectStore, spool)
    object_store_factory.InMemoryObjectStore = store  # type: ignore[misc, assignment]
    app = create_app(config, SuperLinkLifespan)
    state = app.state.linkstate_factory.state()
    return Application(
        app,
        lambda key: state.get_node_id_by_public_key(key) or 0,
        get_uvicorn_log_config(console_handler.level),
        config.ssl_keyfile,
        config.ssl_certfile,
    )


def announced(request: bytes, answer: bytes) -> Announced:
    """Of a driver's messages: to which nodes, and how many objects it is still to send."""
    messages = PushAppMessagesRequest.FromString(request).messages_list
    missing = PushAppMessagesResponse.FromString(answer).objects_to_push
    return Announced({message.metadata.dst_node_id for message in messages}, len(missing))


class Registry:
    """Registers nodes' keys, in PEM form, at the SuperLink of this machine, and takes them out."""

    def __init__(self, here: Connection, node_of: Callable[[bytes], int]) -> None:
        self._control = connect(ControlHttpClient, here)
        self._node_of = node_of

    def register(self, key: bytes) -> None:
        self._control.RegisterNode(RegisterNodeRequest(public_key=key))

    def unregister(self, key: bytes) -> None:
        """Flower 1.41 fails on a node that has never been there, after it has taken it out."""
        try:
            self._control.UnregisterNode(UnregisterNodeRequest(node_id=self._node_of(key)))
        except httpx.HTTPStatusError:
            if self._node_of(key):
                raise
