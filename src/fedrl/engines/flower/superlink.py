"""A SuperLink that outsiders can use as nodes and as nothing else.

Flower serves three interfaces on one port: for nodes (`/v1/fleet/`, behind node authentication),
for executors, and for control: start runs, register nodes. Control asks nobody for a key, so
whoever reaches the port could register a node or start a run. Here everything but the nodes'
interface is open to this machine only, where the driver is, and to addresses that are named. No
request may be larger than a piece of a message can be.

Nodes are known by their public keys, the files `*.pub` of a folder: put one there and its node is
registered within seconds. Messages are held in memory: no update is written to this machine's disk.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from pathlib import Path
from typing import Any

import httpx

from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.link import ME
from fedrl.engines.flower.node import say
from fedrl.engines.flower.settings import LARGEST_PIECE_MB

NODES = "/v1/fleet/"
LOOPBACK = ("127.0.0.1", "::1")
LARGEST_REQUEST = int(LARGEST_PIECE_MB * 1e6) + 2**22
REGISTER_SECONDS = 3.0
PATIENT_TRIES = 10
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "localhost"}
REFUSALS = (401, 403, 411, 412, 413)
"""HTTP statuses: ours, and Flower's for a wrong signature (401) and an unknown key (412)."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]


class Guard:
    """An ASGI application that passes on what the sender may ask."""

    def __init__(self, app: Callable[..., Awaitable[None]], insiders: Collection[str]) -> None:
        self.app = app
        self.insiders = frozenset(insiders)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0 if scope["type"] == "lifespan" else self.refusal(scope)

        async def told(event: Scope) -> None:
            """A node whose key is not registered is refused by Flower, which does not say so."""
            if event["type"] == "http.response.start" and event["status"] in REFUSALS:
                say(f"refused {scope['path']} from {_sender(scope)} ({event['status']})")
            await send(event)

        if status == 0:
            await self.app(scope, receive, told)
        elif scope["type"] == "http":
            await told({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    def refusal(self, scope: Scope) -> int:
        """An HTTP status, or 0."""
        if scope["type"] != "http":
            return 403
        if not scope["path"].startswith(NODES) and _sender(scope) not in self.insiders:
            return 403
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers:
            return 411
        length = headers.get(b"content-length", b"0")
        return 0 if length.isdigit() and int(length) <= LARGEST_REQUEST else 413


def _sender(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


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

    words = ["--isolation", "process", "--host", host, "--port", str(port)]
    words += ["--superexec-auth-secret-file", str(folder / "secret")]
    if insecure:
        words += ["--insecure"]
    else:
        words += ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / "ca.pem")]
        words += ["--ssl-certfile", str(folder / "server.pem")]
        words += ["--ssl-keyfile", str(folder / "server.key")]
        here = Connection(f"{local(host)}:{port}", str(folder / "ca.pem"))
        threading.Thread(target=_register, args=(here, folder / "nodes"), daemon=True).start()
    sys.argv = ["flower-superlink", *words]
    config = _parse_superlink_lifespan_config()
    uvicorn.run(
        Guard(create_app(config, SuperLinkLifespan), {*LOOPBACK, *addresses(host), *insiders}),
        host=host,
        port=port,
        access_log=False,
        timeout_graceful_shutdown=2,
        log_config=get_uvicorn_log_config(console_handler.level),
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
    )


def _register(here: Connection, folder: Path) -> None:
    """Register the nodes whose keys lie in the folder, now and when new ones come."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control.control_http_client import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    control = ControlHttpClient.from_server_address(
        here.address,
        here.insecure,
        here.read_ca(),
        [RuntimeVersionHttpInterceptor(component_name=ME)],
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
