"""Where a SuperLink is and how to trust it: a small TOML file, by name or by path.

`fedrl flower up` and `fedrl flower link` write it. Names lie in ~/.fedrl/connections, or in the
folder that FEDRL_CONNECTIONS names. The file holds no secret, only where the secret lies.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.core.types import UserError
from fedrl.engines.flower.address import parse

if TYPE_CHECKING:
    from fedrl.engines.flower.registered import Registered

FOLDER = "FEDRL_CONNECTIONS"
KEYS = {"address", "ca", "secret", "nodes"}
TRIAL = "local"
"""The name that `fedrl flower up` takes if it is given none."""
SIGNING_KEY = "signing.key"
"""In the folder of `fedrl flower keys server`."""


class Lost(Exception):
    """The SuperLink does not answer, or no longer knows this run; `status` if it said so."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Connection:
    """`address` is host:port; without a CA's certificate the connection is plain text.

    `nodes` is the folder of the nodes' public keys, client-0.pub and so on; it lies beside `secret`
    where nothing else is said.
    """

    address: str
    ca: str = ""
    secret: str = ""
    nodes: str = ""

    @property
    def insecure(self) -> bool:
        return not self.ca

    def read_ca(self) -> bytes | None:
        if not self.ca:
            return None
        certificate = _bytes_of(self.ca, "the CA's certificate")
        if b"BEGIN CERTIFICATE" not in certificate:
            raise UserError(f"{self.ca} is no certificate in PEM form")
        return certificate

    def registered(self) -> Registered | None:
        """Whose key is whose; nobody has one where the connection is plain text."""
        if self.insecure:
            return None
        from fedrl.engines.flower.registered import Registered

        return Registered(Path(self.nodes or Path(self.secret).parent / "nodes"))

    @property
    def signing_key(self) -> Path | None:
        """The key that signs what leaves this coordinator's runs, where it can be read: beside
        `secret`."""
        path = Path(self.secret).parent / SIGNING_KEY
        return path if self.secret and os.access(path, os.R_OK) else None

    def read_secret(self) -> bytes | None:
        return _bytes_of(self.secret, "the executor's secret") if self.secret else None


def _bytes_of(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}, {what}, cannot be read: {error.strerror}") from error


def folder() -> Path:
    return Path(os.environ.get(FOLDER) or Path.home() / ".fedrl" / "connections")


def find(name: str) -> Connection:
    path = Path(name) if name.endswith(".toml") else folder() / f"{name}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = sorted(p.stem for p in folder().glob("*.toml"))
        made = f"`fedrl flower link --name {Path(name).stem}` writes one, and so does `flower up`"
        choice = f"choose from {', '.join(known)}, or {made}" if known else made
        raise UserError(f"connection is {name!r}, but there is no {path}; {choice}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error
    if not isinstance(data.get("address"), str) or not set(data) <= KEYS:
        raise UserError(f"{path}: a connection has address, ca, secret and nodes, all texts")
    host, _, port = data["address"].rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"{path}: address is {data['address']!r}; it must be HOST:PORT")
    return Connection(**{key: str(value) for key, value in data.items()})


def owner(name: str) -> Path | None:
    """The folder of the coordinator whose connection has this name, if both are there."""
    try:
        secret = Path(find(name).secret)
    except UserError:
        return None
    return secret.parent if secret.is_file() else None


def require_own(name: str, place: Path) -> None:
    """`UserError` if this name is the connection of another folder than `place`; that for trying
    things out is of whoever did last, unless its SuperLink answers."""
    if (other := owner(name)) not in (None, place) and (name != TRIAL or _in_use(name)):
        raise UserError(
            f"--name {name} is the connection of --folder {other}: give this one another name, or "
            f"remove {folder() / name}.toml"
        )


def _in_use(name: str) -> bool:
    try:
        address = parse(find(name).address)
        socket.create_connection((address.host, address.port), timeout=1).close()
    except (UserError, OSError):
        return False
    return True


def differs(name: str, connection: Connection) -> bool:
    """Whether there is one of this name that is another, or cannot be read."""
    if not (folder() / f"{name}.toml").exists():
        return False
    try:
        return find(name) != connection
    except UserError:
        return True


def save(name: str, connection: Connection) -> Path:
    path = folder() / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    # JSON's texts are TOML's, whatever a path has in it.
    known = dataclasses.asdict(connection).items()
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in known if value]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
