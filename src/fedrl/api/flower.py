"""`fedrl.flower`: the parts of a federation across machines.

    with fedrl.flower.up(clients=3):  # on this machine, to try it out
        fedrl.run("momentum/cartpole", engine="flower", connection="local", …)

docs/deploy.md takes you through it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedrl.api.flower_check import check as check
from fedrl.api.flower_check import status as status
from fedrl.api.flower_review import Audit as Audit
from fedrl.api.flower_review import approve as approve
from fedrl.api.flower_review import audit as audit
from fedrl.api.flower_review import describe as describe
from fedrl.api.flower_review import needs_flower, policy_file
from fedrl.api.flower_review import waiting as waiting
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from fedrl.engines.flower.local_federation import LocalFederation

PORT = 9092
HERE = ("localhost", "127.0.0.1")


@needs_flower
def make_server_keys(folder: str | Path, hosts: Iterable[str] = ()) -> Path:
    """A CA, a server certificate for these names, and the driver's secret; nothing is replaced."""
    from fedrl.engines.flower import keys

    keys.make_server(Path(folder), [*hosts, *HERE])
    return Path(folder)


@needs_flower
def make_signing_key(path: str | Path) -> str:
    """A key that signs models: `path` and `path`.pub, or of the server's folder signing.key, for
    which its CA vouches. Returns its fingerprint."""
    from fedrl.core import signatures
    from fedrl.engines.flower import keys

    place = Path(path)
    if place.is_dir():
        return keys.make_signer(place)
    return signatures.fingerprint(signatures.make_key(place))


@needs_flower
def renew_server_certificate(folder: str | Path, hosts: Iterable[str] = ()) -> Path:
    """A new key and certificate of the same CA for the server; one that runs takes them up."""
    from fedrl.engines.flower import keys

    given = list(hosts)
    keys.renew_server(Path(folder), [*given, *HERE] if given else [])
    return Path(folder)


@needs_flower
def coordinator(ca: str | Path) -> str:
    """How policies and audit logs call the coordinator of a ca.pem: SHA-256 of its CA's key."""
    from fedrl.engines.flower import keys

    return keys.coordinator_digest(Path(ca))


@needs_flower
def node_key(file: str | Path) -> str:
    """How the coordinator's register calls a node's key: SHA-256 of its public half, `file`.pub."""
    from fedrl.engines.flower import keys

    return keys.public_digest(Path(file))


@needs_flower
def make_node_keys(
    file: str | Path, folder: str | Path | None = None, ca: str | Path | None = None
) -> Path:
    """A node's key pair: `file`, which stays, and `file`.pub, which goes to the server's side.

    A commented policy.toml is written into the node's `folder`, or beside the key, if there is
    none; it names the coordinator of `ca`. One that is there stays as it is. Returns its path.
    """
    from fedrl.engines.flower import key_folder, keys, policy

    said = {"coordinators": (keys.coordinator_digest(Path(ca)),)} if ca else {}
    place = Path(folder) if folder else Path(file).parent
    if place.exists() and not place.is_dir():
        raise UserError(f"--folder {place} is no folder")
    key_folder.require_none(Path(file))
    keys.make_node(Path(file))
    policy.write_template(place, **said)
    if folder:
        key_folder.remember(Path(file), place)
    return place / policy.FILE


@needs_flower
def link(
    folder: str | Path,
    *,
    host: str = "0.0.0.0",
    port: int = PORT,
    insecure: bool = False,
    drivers: Iterable[str] = (),
    name: str = "",
    named: Callable[[Path, bool], object] | None = None,
) -> None:
    """Run the SuperLink until it is stopped; `folder` is of `make_server_keys`.

    `drivers` are addresses beside this machine's from which runs may be driven. `name` writes a
    connection for the driver, and `named` is called with its file, and whether it replaced another.
    """
    place = Path(folder)
    _check_folder(place, insecure)
    if not 0 < port < 65536:
        raise UserError(f"--port is {port}; ports are 1 to 65535")
    if insecure and host != "127.0.0.1":
        raise UserError("--insecure has no keys and no encryption: it needs --host 127.0.0.1")
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise UserError(f"--host {host} is no address of this machine: {error}") from error

    from fedrl.engines.flower import connection, superlink

    place = place.resolve()
    if name:
        connection.require_own(name, place)

    def listening() -> None:
        """Before that it may still fail, and the name would lead nowhere."""
        if not name:
            return
        ca = "" if insecure else str(place / "ca.pem")
        address = f"{superlink.local(host)}:{port}"
        here = connection.Connection(address, ca, str(place / "secret"), str(place / "nodes"))
        replaced = connection.differs(name, here)
        written = connection.save(name, here)
        if named is not None:
            named(written, replaced)

    superlink.serve(host, port, place, insecure, list(drivers), listening)


def _check_folder(folder: Path, insecure: bool) -> None:
    needed = ["secret"] if insecure else ["secret", "ca.pem", "server.pem", "server.key"]
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"--folder {folder} lacks {', '.join(missing)}: make it with "
            f"`fedrl flower keys server {folder}`"
        )


@needs_flower
def node(
    superlink: str,
    folder: str | Path,
    *,
    client: int,
    ca: str | Path | None = None,
    key: str | Path | None = None,
    peers: str | Path | None = None,
    policy: str | Path | None = None,
    least_clients: int | None = None,
    allow: Sequence[str] = (),
    packages: Sequence[str] = (),
    regroup: bool = False,
    insecure: bool = False,
    data: str | Path = "",
    keep_model: bool = False,
    poll: float = 3.0,
    own: Sequence[str] = (),
) -> None:
    """Run one client's node until it is stopped; `fedrl flower node --help` says what is what.

    `policy` is a file of the node's rules, policy.toml in its folder by default; what is given here
    goes over it. `own` are flags of settings that go over those of every recipe that is sent.
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

    if data and not Path(data).is_dir():
        raise UserError(f"--data {data} is no folder")

    from fedrl.engines.flower import address, key_folder, keys, node_recipes
    from fedrl.engines.flower.policy import Flags
    from fedrl.engines.flower.supernode import SuperNode, serve
    from fedrl.privacy.secure_aggregation import identity

    address.parse(superlink)
    place = str(Path(data).resolve()) if data else ""
    said = Flags(least_clients, tuple(allow), tuple(packages), None, keep_model or None,
                 regroup or None)  # fmt: skip
    file = policy_file(Path(folder), policy, private)
    if private is not None and not policy:
        key_folder.require(private, Path(folder))
    served = node_recipes.client(
        client,
        Path(folder).resolve(),
        place,
        tuple(own),
        said,
        identity.load(private, others, client),
        keys.coordinator_digest(certificate) if certificate else "",
        (*_secrets(private), file),
        file,
        others,
    )
    serve(SuperNode(superlink, certificate, private, poll), served)


def _secrets(key: Path | None) -> list[Path]:
    """Files that no recipe may name: its key, the next one, the last one, and its folder's name."""
    ends = ("", ".next", ".old", ".folder")
    return [key.with_name(key.name + end) for end in ends] if key else []


@needs_flower
def renew_node_key(file: str | Path) -> Path:
    """A new key beside a node's, `file`.next; returns `file`.renewal, which the old one has signed,
    for the coordinator and the peers: `register`."""
    from fedrl.engines.flower import registered

    return registered.renew(Path(file))


@needs_flower
def use_node_key(file: str | Path) -> None:
    """Put `file`.next in the place of `file`, once it is registered; a node that runs takes it up
    in the next moment in which nothing is under way."""
    from fedrl.engines.flower import registered

    registered.use(Path(file))


@needs_flower
def register(
    folder: str | Path, file: str | Path, *, client: int | None = None, name: str = ""
) -> tuple[int, str]:
    """Put a node's public key into the register of a server's folder, or of a folder of peers,
    under a client's number and name; or the renewal of a key that is there. Returns both."""
    from fedrl.engines.flower import registered

    if client is not None and client < 0:
        raise UserError(f"--client is {client}; clients are numbered from 0")
    return registered.at(Path(folder)).add(Path(file), client, name)


@needs_flower
def revoke(folder: str | Path, client: int, *, old: bool = False) -> int:
    """Take a client out of a register, or with `old` all but its newest key: how many keys. A
    SuperLink that runs takes note within seconds."""
    from fedrl.engines.flower import registered

    return registered.at(Path(folder)).remove(client, old)


class Member(NamedTuple):
    """A client in a register: `keys` are digests, oldest first."""

    client: int
    name: str
    keys: list[str]


@needs_flower
def members(folder: str | Path) -> list[Member]:
    """Who is in the register of a server's folder, or of a folder of peers."""
    from fedrl.engines.flower import registered
    from fedrl.engines.flower.keys import key_digest

    found = registered.at(Path(folder)).clients()
    return [
        Member(n, named[-1].name, [key_digest(k) for k, _ in named]) for n, named in found.items()
    ]


def _check_poll(seconds: float) -> None:
    if not 0.1 <= seconds <= 3.0:
        raise UserError(f"--poll is {seconds:g}; it lies between 0.1 and Flower's own 3 seconds")


@needs_flower
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
    data: str | Path | None = None,
) -> LocalFederation:
    """A SuperLink and nodes on this machine, with keys made on the spot, as a context.

    `name` is the connection by which runs find it; `data` has a folder for each client's own.
    """
    _check_poll(poll)
    if insecure and peers:
        raise UserError("--peers is for nodes with a key, and --insecure has none")
    if clients < 1:
        raise UserError(f"--clients is {clients}; it must be at least 1")
    if not 0 <= port < 65536:
        raise UserError(f"--port is {port}; ports are 1 to 65535, and 0 is any free one")

    from fedrl.engines.flower import connection
    from fedrl.engines.flower.local_federation import SERVER, LocalFederation

    place = Path(folder).resolve()
    connection.require_own(name, place / SERVER)
    return LocalFederation(
        place,
        clients,
        port,
        name,
        insecure,
        poll=poll,
        peers=peers,
        allowed=allow,
        packages=packages,
        own=own,
        data=Path(data) if data else None,
        regroup=True,  # all nodes are one person's, who tries things out
    )
