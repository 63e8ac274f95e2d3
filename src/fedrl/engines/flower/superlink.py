"""A SuperLink that outsiders can use as nodes and as nothing else.

Flower serves three interfaces on one port: for nodes (`/v1/fleet/`, behind node authentication),
for executors, and for control: start runs, register nodes. Control asks nobody for a key, so
whoever reaches the port could register a node or start a run. Here (`guard.py`) everything but the
nodes' interface asks for the secret, and is open only to this machine, where the driver is, and to
addresses that are named. `listener.py` bounds how many connections there are.

Nodes are known by their public keys, the files `*.pub` of a folder: put one there and its node is
registered within seconds. Messages are held in memory: no update is written to this machine's disk.
"""

from __future__ import annotations

import datetime
import socket
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Collection
from pathlib import Path
from typing import Any

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.driver_auth import Signing
from fedrl.engines.flower.node import say
from fedrl.engines.flower.superlink_client import ME
from fedrl.engines.flower.superlink_guard import Guard

LOOPBACK = ("127.0.0.1", "::1")
REGISTER_SECONDS = 3.0
PATIENT_TRIES = 10
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "localhost"}


def signer(headers: dict[str, str]) -> bytes | None:
    """The public key that a node claims and has signed the time with, as Flower checks it later."""
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    try:
        claimed = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        told = headers[TIMESTAMP_HEADER].encode("ascii")
        age = (now() - datetime.datetime.fromisoformat(told.decode())).total_seconds()
        key: Any = bytes_to_public_key(claimed)
    except (KeyError, ValueError, TypeError, OverflowError, UnsupportedAlgorithm):
        return None
    if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
        return None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return None
    return claimed if verify_signature(key, told, signature) else None


def local(host: str) -> str:
    """By what name this machine reaches a SuperLink that listens there."""
    return ANYWHERE.get(host, f"[{host}]" if ":" in host else host)


def addresses(host: str) -> set[str]:
    """From where this machine reaches itself under that name."""
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}


def serve(
    host: str,
    port: int,
    folder: Path,
    insecure: bool,
    insiders: Collection[str],
) -> None:
    """Until it is stopped. `folder` holds server.pem, server.key, ca.pem, secret and nodes/."""
    import uvicorn
    from flwr.supercore.http_logging import get_uvicorn_log_config
    from flwr.supercore.logger import console_handler
    from flwr.superlink.cli.flower_superlink import (
        SuperLinkLifespan,
        _parse_superlink_lifespan_config,
    )
    from flwr.superlink.main import create_app

    from fedrl.engines.flower.superlink_listener import Doorkeeper, Impatient, listen

    words = ["--isolation", "process", "--host", host, "--port", str(port)]
    words += ["--superexec-auth-secret-file", str(folder / "secret")]
    if insecure:
        words += ["--insecure"]
    else:
        words += ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / "ca.pem")]
        words += ["--ssl-certfile", str(folder / "server.pem")]
        words += ["--ssl-keyfile", str(folder / "server.key")]
        here = Connection(f"{local(host)}:{port}", str(folder / "ca.pem"), str(folder / "secret"))
        threading.Thread(target=_register, args=(here, folder / "nodes"), daemon=True).start()
    sys.argv = ["flower-superlink", *words]
    config = _parse_superlink_lifespan_config()
    app = create_app(config, SuperLinkLifespan)
    state = app.state.linkstate_factory.state()
    guard = Guard(
        app,
        {*LOOPBACK, *addresses(host), *insiders},
        (folder / "secret").read_bytes(),
        signer,
        lambda key: state.get_node_id_by_public_key(key) is not None,
        opened=insecure,
    )
    settings = uvicorn.Config(
        guard,
        http=Impatient,
        ws="none",
        loop="asyncio",  # the other one goes round the listener's `accept`
        access_log=False,
        timeout_graceful_shutdown=2,
        log_config=get_uvicorn_log_config(console_handler.level),
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
    )
    uvicorn.Server(settings).run(list(listen(host, port, Doorkeeper())))


def _register(here: Connection, folder: Path) -> None:
    """Register the nodes whose keys lie in the folder, now and when new ones come."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control.control_http_client import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    secret = here.read_secret()
    control = ControlHttpClient.from_server_address(
        here.address,
        here.insecure,
        here.read_ca(),
        [RuntimeVersionHttpInterceptor(component_name=ME), *([Signing(secret)] if secret else [])],
    )
    done: set[tuple[str, bytes]] = set()
    tries = 0
    while True:
        for path in sorted(folder.glob("*.pub")):
            text = b""
            try:
                text = path.read_bytes()
                if (path.name, text) in done:
                    continue
                key: Any = load_ssh_public_key(text)
                control.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key)))
                say(f"registered the node of {path.name}")
            except httpx.TransportError as error:  # the SuperLink is starting
                tries += 1
                if tries == PATIENT_TRIES:
                    say(f"no node is registered: nothing answers at {here.address} ({error})")
                break
            except Exception as error:  # noqa: BLE001 - one bad file must not keep the others out
                if (path.name, text) not in done:
                    say(f"{path.name} was not registered: {type(error).__name__}")
            done.add((path.name, text))
        time.sleep(REGISTER_SECONDS)
