"""A SuperLink that outsiders can use as nodes and as nothing else.

Flower serves three interfaces on one port: for nodes (`/v1/fleet/`, behind node authentication),
for executors, and for control: start runs, register nodes. Control asks nobody for a key, so
whoever reaches the port could register a node or start a run. Here (`superlink_guard.py`)
everything but the nodes' interface asks for the secret, and is open only to this machine, where the
driver is, and to addresses that are named. `superlink_listener.py` bounds how many connections
there are.

Nodes are known by their public keys, the files `*.pub` of a folder: put one there and its node is
registered within seconds, take it away and it is none (`superlink_register.py`). Messages are held
in memory, and what is too large for that in files which this process alone can read
(`adapter/object_store.py`): no update can be read from this machine's disk.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import fedrl
from fedrl.core import memory_arenas
from fedrl.engines.flower import running_lock
from fedrl.engines.flower.adapter import superlink as adapter
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.owner_log import say
from fedrl.engines.flower.superlink_guard import Guard
from fedrl.engines.flower.superlink_register import KeptCertificate, KeptRegister

LOOPBACK = ("127.0.0.1", "::1")
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "localhost"}


def local(host: str) -> str:
    """By what name this machine reaches a SuperLink that listens there."""
    return ANYWHERE.get(host, f"[{host}]" if ":" in host else host)


def addresses(host: str) -> set[str]:
    """From where this machine reaches itself under that name."""
    return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}


def serve(
    host: str,
    port: int,
    folder: Path,
    insecure: bool,
    insiders: Collection[str],
    listening: Callable[[], None] = lambda: None,
) -> None:
    """Until it is stopped; `listening` is called once it listens. `folder` holds server.pem,
    server.key, ca.pem, secret and nodes/."""
    with running_lock.alone(folder, f"--folder {folder}: another SuperLink runs in it"):
        _serve(host, port, folder, insecure, insiders, listening)


def _serve(
    host: str,
    port: int,
    folder: Path,
    insecure: bool,
    insiders: Collection[str],
    listening: Callable[[], None],
) -> None:
    import uvicorn

    from fedrl.engines.flower.superlink_listener import (
        Doorkeeper,
        Impatient,
        limit_warnings,
        listen,
    )

    memory_arenas.limit()
    audit = CoordinatorAudit(folder)
    audit.add("link", host=host, port=port, version=fedrl.__version__)
    options = ["--isolation", "process", "--host", host, "--port", str(port)]
    options += ["--superexec-auth-secret-file", str(folder / "secret")]
    if insecure:
        options += ["--insecure"]
    else:
        options += ["--enable-supernode-auth", "--ssl-ca-certfile", str(folder / "ca.pem")]
        options += ["--ssl-certfile", str(folder / "server.pem")]
        options += ["--ssl-keyfile", str(folder / "server.key")]
    superlink = adapter.application(options, folder / "spool")
    drivers = {*LOOPBACK, *addresses(host), *insiders}
    guard = Guard(
        superlink.app,
        drivers,
        (folder / "secret").read_bytes(),
        adapter.signing_key,
        superlink.node_of,
        opened=insecure,
        audit=audit,
        announced=adapter.announced,
    )
    settings = uvicorn.Config(
        guard,
        http=Impatient,
        ws="none",
        loop="asyncio",  # the other one goes round the listener's `accept`
        access_log=False,
        timeout_graceful_shutdown=2,
        log_config=superlink.log_config,
        ssl_keyfile=superlink.ssl_keyfile,
        ssl_certfile=superlink.ssl_certfile,
    )
    settings.load()
    limit_warnings(logging.getLogger("uvicorn.error"))
    if settings.ssl is not None:
        here = Connection(f"{local(host)}:{port}", str(folder / "ca.pem"), str(folder / "secret"))
        registry = adapter.Registry(here, superlink.node_of)
        register = KeptRegister(registry, folder / "nodes", audit)
        guard.client_of = register.client_of
        certificate = KeptCertificate(settings.ssl, folder, audit)
        for kept in (register.keep, certificate.keep):
            threading.Thread(target=kept, daemon=True).start()
    listeners = listen(host, port, Doorkeeper(known=drivers))
    listening()
    members = sum(1 for _ in (folder / "nodes").glob("*.pub"))
    say(f"the SuperLink listens at {host}:{port}; {members} keys of members in {folder / 'nodes'}")

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            guard.waiting.end()
            await super().shutdown(sockets)

    Server(settings).run(list(listeners))
