"""`fedrl.flower`: the parts of a federation across machines. docs/deploy.md takes you through it.

with fedrl.flower.up(clients=3):  # on this machine, to try it out
    fedrl.run("momentum/cartpole", engine="flower", connection="local", …)
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from fedrl.engines.flower.local_federation import LocalFederation

PORT = 9092
HERE = ("localhost", "127.0.0.1")

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def _needs_flower(call: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    @wraps(call)
    def called(*words: Arguments.args, **named: Arguments.kwargs) -> Returned:
        try:
            return call(*words, **named)
        except ModuleNotFoundError as error:
            raise missing_extra(error, "fedrl flower", "flower") from error

    return called


@_needs_flower
def make_server_keys(folder: str | Path, hosts: Iterable[str] = ()) -> Path:
    """A CA, a server certificate for these names, and the driver's secret; nothing is replaced."""
    from fedrl.engines.flower import keys

    keys.make_server(Path(folder), [*hosts, *HERE])
    return Path(folder)


@_needs_flower
def make_node_keys(file: str | Path) -> Path:
    """A node's key pair: `file`, which stays, and `file`.pub, which goes to the server's side."""
    from fedrl.engines.flower import keys

    keys.make_node(Path(file))
    return Path(file)


@_needs_flower
def link(
    folder: str | Path,
    *,
    host: str = "0.0.0.0",
    port: int = PORT,
    insecure: bool = False,
    drivers: Iterable[str] = (),
    name: str = "",
    named: Callable[[Path], object] | None = None,
) -> None:
    """Run the SuperLink until it is stopped; `folder` is of `make_server_keys`.

    `drivers` are addresses beside this machine's from which runs may be driven. `name` writes a
    connection for the driver, and `named` is called with its file.
    """
    place = Path(folder)
    _check_folder(place, insecure)
    if insecure and host != "127.0.0.1":
        raise UserError("--insecure has no keys and no encryption: it needs --host 127.0.0.1")
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise UserError(f"--host {host} is no address of this machine: {error}") from error

    from fedrl.engines.flower import connection, superlink

    place = place.resolve()
    if name:
        ca = "" if insecure else str(place / "ca.pem")
        address = f"{superlink.local(host)}:{port}"
        here = connection.Connection(address, ca, str(place / "secret"), str(place / "nodes"))
        written = connection.save(name, here)
        if named is not None:
            named(written)
    superlink.serve(host, port, place, insecure, list(drivers))


def _check_folder(folder: Path, insecure: bool) -> None:
    needed = ["secret"] if insecure else ["secret", "ca.pem", "server.pem", "server.key"]
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"--folder {folder} lacks {', '.join(missing)}: make it with "
            f"`fedrl flower keys server {folder}`"
        )


@_needs_flower
def node(
    superlink: str,
    folder: str | Path,
    *,
    client: int,
    ca: str | Path | None = None,
    key: str | Path | None = None,
    peers: str | Path | None = None,
    least_clients: int = 1,
    allow: Sequence[str] = (),
    packages: Sequence[str] = (),
    regroup: bool = False,
    insecure: bool = False,
    data: str | Path = "",
    poll: float = 3.0,
    own: Sequence[str] = (),
) -> None:
    """Run one client's node until it is stopped; `fedrl flower node --help` says what is what.

    `own` are flags of settings that go over those of every recipe that is sent, `packages` those of
    others whose methods and worlds a recipe may name.
    """
    _check_poll(poll)
    if client < 0:
        raise UserError(f"--client is {client}; clients are numbered from 0")
    if insecure == bool(ca and key):
        raise UserError("a node needs --ca and --key, or --insecure and neither")
    if insecure and peers:
        raise UserError("--peers is for nodes with a key, and --insecure has none")
    certificate, private, others = (Path(path) if path else None for path in (ca, key, peers))
    for path in (certificate, private):
        if path is not None and not path.is_file():
            raise UserError(f"{path} is no file")

    from fedrl.engines.flower import node_recipes
    from fedrl.engines.flower.supernode import SuperNode, serve
    from fedrl.privacy.secure_aggregation import identity

    place = str(Path(data).resolve()) if data else ""
    served = node_recipes.client(
        client, Path(folder).resolve(), place, tuple(own), allow, least_clients, packages
    )
    served.identity = identity.load(private, others, client)
    served.regroup = regroup
    serve(SuperNode(superlink, certificate, private, poll), served)


def _check_poll(seconds: float) -> None:
    if not 0.1 <= seconds <= 3.0:
        raise UserError(f"--poll is {seconds:g}; it lies between 0.1 and Flower's own 3 seconds")


@_needs_flower
def up(
    clients: int = 3,
    folder: str | Path = "flower",
    *,
    port: int = 0,
    name: str = "local",
    insecure: bool = False,
    poll: float = 0.5,
    peers: bool = False,
    allow: Sequence[str] = (),
    packages: Sequence[str] = (),
    own: Sequence[str] = (),
) -> LocalFederation:
    """A SuperLink and nodes on this machine, with keys made on the spot, as a context.

    `name` is the connection by which runs find it.
    """
    _check_poll(poll)
    if insecure and peers:
        raise UserError("--peers is for nodes with a key, and --insecure has none")
    if clients < 1:
        raise UserError(f"--clients is {clients}; it must be at least 1")

    from fedrl.engines.flower.local_federation import LocalFederation

    return LocalFederation(
        Path(folder).resolve(),
        clients,
        port,
        name,
        insecure,
        poll=poll,
        peers=peers,
        allowed=allow,
        packages=packages,
        own=own,
        regroup=True,  # all nodes are one person's, who tries things out
    )
