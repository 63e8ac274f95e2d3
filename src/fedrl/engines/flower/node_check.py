"""`fedrl flower check`: would this node get in? Step by step, each with what to do if it fails.

    address    HOST:PORT is one, and this machine knows the name
    reach      something listens there
    TLS        its certificate is of the federation's CA (ca.pem), for this name, and valid now
    clock      it differs by less than signatures allow
    key        the SuperLink knows it, as that of this client
    folder     the node can write there; its policy can be read, and names this coordinator
    data       what its folder holds; whether the coordinator's model was copied

A step that fails ends those that need it; files that are missing are told whether or not something
listens. The request that asks about the key changes nothing; if
it is refused, that is a line in the coordinator's log.
"""

from __future__ import annotations

import contextlib
import email.utils
import functools
import http.client
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedrl.core.types import UserError
from fedrl.engines.flower import key_folder, keys, policy
from fedrl.engines.flower.adapter import node_auth
from fedrl.engines.flower.address import Address, parse

PATIENCE = 10.0
PATH, CLIENT = "/v1/fleet/check", "x-fedrl-client"
"""Where a SuperLink is asked who a key's owner is, and the header that says it: a number, or
nothing of a key that is filed under none."""
ANOTHER_AUTHORITY = (18, 19, 20, 21, 7)
"""OpenSSL's: self-signed, an issuer that is not known, a signature that is not its."""
WRONG_NAME, NOT_YET, EXPIRED = (62, 64), 9, 10
LEAST_DISK = 2**30
MODEL = "model"
MOST_NAMED = 8
"""Of what lies in the data's folder."""


class Finding(NamedTuple):
    """`doubtful` is what may be as it should be: a person looks at it."""

    good: bool
    what: str
    doubtful: bool = False


@dataclass(frozen=True)
class Joining:
    """A node as it would be started."""

    superlink: str
    ca: Path | None = None
    key: Path | None = None
    folder: Path | None = None
    policy: Path | None = None
    data: Path | None = None
    client: int | None = None

    @property
    def name(self) -> str:
        """By its key's file: north.key is north."""
        return self.key.name.removesuffix(".key") if self.key else "a node without a key"


def check(node: Joining) -> Iterator[Finding]:
    """All of it; what can be known without the SuperLink is told even if that is away."""
    bad = list(unusable(node))
    yield from _address(node) if bad else reach(node)
    yield from bad
    yield from own(node)


def unusable(node: Joining) -> Iterator[Finding]:
    """The files that a node shows and trusts, where they are missing or none."""
    looks: list[Callable[[], object]] = []
    if node.ca is not None and node.key is not None:
        looks = [functools.partial(_trusting, node.ca), functools.partial(_private_key, node.key)]
    for look in looks:
        try:
            look()
        except UserError as error:
            yield Finding(False, str(error))


def _address(node: Joining) -> Iterator[Finding]:
    try:
        yield from _listens(parse(node.superlink))
    except UserError as error:
        yield Finding(False, str(error))


def reach(node: Joining) -> Iterator[Finding]:
    """From the address to the key: the last finding is bad, or all are good."""
    try:
        address = parse(node.superlink)
        yield from _listens(address)
        if node.ca is None or node.key is None:
            yield Finding(True, "no certificate and no key: --insecure, on loopback only")
            return
        key = _private_key(node.key)
        context = _trusting(node.ca)
        yield Finding(True, _secured(address, context, node.ca))
        status, off, client = _asked(address, context, key)
        yield Finding(True, _clock(off))
        yield Finding(True, _known(status, node.key, address, keys.key_digest(key.public_key())))
        if client is not None and node.client is not None:
            yield Finding(True, _numbered(client, node.client))
    except UserError as error:
        yield Finding(False, str(error))


def unreachable(superlink: str, ca: str) -> str:
    """What keeps a driver from speaking with a SuperLink, from its name to its certificate; empty
    if it is none of these."""
    try:
        address = parse(superlink, "address of this connection")
        next(_listens(address))
        if ca:
            _secured(address, _trusting(Path(ca)), Path(ca))
    except UserError as error:
        return str(error)
    return ""


def _listens(address: Address) -> Iterator[Finding]:
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(
            f"this machine knows no {address.host}: is it spelled right, and is its DNS or "
            "/etc/hosts set up?"
        ) from error
    try:
        socket.create_connection((address.host, address.port), PATIENCE).close()
    except ConnectionRefusedError as error:
        raise UserError(
            f"nothing listens at {address}: is the coordinator's `fedrl flower link` running, and "
            "is this its port?"
        ) from error
    except TimeoutError as error:
        raise UserError(
            f"{address} does not answer within {PATIENCE:.0f} s: a firewall between, or a machine "
            "that is off?"
        ) from error
    except OSError as error:
        raise UserError(f"{address} cannot be reached: {error.strerror or error}") from error
    yield Finding(True, f"{address} answers")


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise UserError(f"the key {path} cannot be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        half = "; it is the public half, --key is the other" if path.suffix == ".pub" else ""
        raise UserError(f"{path} is no key of `fedrl flower keys node`{half}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path} is no key of `fedrl flower keys node`")
    if path.stat().st_mode & 0o077:
        raise UserError(f"others on this machine can read the key {path}: chmod 600 {path}")
    return key


def _trusting(ca: Path) -> ssl.SSLContext:
    keys.coordinator_digest(ca)  # says what is wrong with it
    return ssl.create_default_context(cafile=str(ca))


def _secured(address: Address, context: ssl.SSLContext, ca: Path) -> str:
    try:
        with (
            socket.create_connection(address, PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=address.host) as secured,
        ):
            ends = str((secured.getpeercert() or {}).get("notAfter", "?"))
    except ssl.SSLCertVerificationError as error:
        raise UserError(_distrusted(error, address, ca)) from error
    except ssl.SSLError as error:
        raise UserError(
            f"{address} speaks no TLS: is this the SuperLink's port, and was it started without "
            f"--insecure? ({error.reason})"
        ) from error
    except TimeoutError as error:
        raise UserError(
            f"{address} listens, and says nothing within {PATIENCE:.0f} s: is this the SuperLink's "
            "port?"
        ) from error
    except OSError as error:
        raise UserError(f"{address} ended the connection: {error.strerror or error}") from error
    return f"its certificate is of the authority in {ca.name}, valid until {ends}"


def _distrusted(error: ssl.SSLCertVerificationError, address: Address, ca: Path) -> str:
    code = error.verify_code
    if code in ANOTHER_AUTHORITY:
        return (
            f"this certificate is of another authority than {ca}: ask the coordinator for the "
            "ca.pem of this federation, and compare its digest by telephone"
        )
    if code in WRONG_NAME:
        return (
            f"the certificate is not for the name {address.host}: call it by a name that the "
            "coordinator gave to `fedrl flower keys server --host`"
        )
    clock = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if code == NOT_YET:
        return f"the certificate is not valid yet by this machine's clock ({clock}): is it right?"
    if code == EXPIRED:
        return (
            f"the certificate has expired by this machine's clock ({clock}): the coordinator needs "
            "a new one, or the clock is wrong"
        )
    return f"the certificate is not trusted: {error.verify_message}"


def _asked(
    address: Address, context: ssl.SSLContext, key: ec.EllipticCurvePrivateKey
) -> tuple[int, float, str | None]:
    """The SuperLink's answer to a signed request, how far this clock is before its own, and as
    which client it knows the key."""
    line = http.client.HTTPSConnection(
        address.host, address.port, timeout=PATIENCE, context=context
    )
    try:
        line.request("POST", PATH, headers=node_auth.signed_headers(key))
        reply = line.getresponse()
        reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"{address} is no SuperLink of fedrl ({type(error).__name__})") from error
    finally:
        line.close()
    told = email.utils.parsedate_tz(reply.headers.get("Date", ""))
    off = time.time() - email.utils.mktime_tz(told) if told else 0.0
    return reply.status, off, reply.headers.get(CLIENT)


def _clock(off: float) -> str:
    """The SuperLink tells whole seconds."""
    if off > node_auth.AHEAD_SECONDS + 1 or -off > node_auth.BEHIND_SECONDS:
        side = "ahead" if off > 0 else "behind"
        raise UserError(
            f"this machine's clock is {abs(off):.0f} s {side} of the coordinator's, and signatures "
            f"allow {node_auth.AHEAD_SECONDS:.0f} s ahead and {node_auth.BEHIND_SECONDS:.0f} s "
            "behind: set both by NTP (timedatectl shows whether it is on)"
        )
    return f"the clocks agree (to {max(abs(off), 1):.0f} s)"


def _known(status: int, key: Path, address: Address, digest: str) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PRECONDITION_FAILED):
        raise UserError(
            f"your key is not registered yet: send {key.name}.pub to the coordinator, who says "
            f"fedrl flower register HUB {key.name}.pub --client N; it counts within seconds (its "
            f"digest: {digest})"
        )
    if status not in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.OK):
        raise UserError(f"{address} is no SuperLink of fedrl: it answers {status}")
    return f"your key {key.name} is registered: {digest}"


def _numbered(filed: str, client: int) -> str:
    if not filed:
        raise UserError(
            "your key is registered, but under no client's number: the coordinator has to name its "
            f"file client-{client}.pub"
        )
    if filed != str(client):
        raise UserError(
            f"your key is filed as that of client {filed}, and this node says --client {client}: "
            f"use --client {filed}, or ask the coordinator"
        )
    return f"it is that of client {client}"


def own(node: Joining) -> Iterator[Finding]:
    """What lies on this machine."""
    for step in (_folder, _policy, _data, _model):
        try:
            found = step(node)
        except UserError as error:
            yield Finding(False, str(error))
        else:
            if isinstance(found, Finding):
                yield found
            elif found:
                yield Finding(True, found)


def _folder(node: Joining) -> str:
    if node.folder is None:
        return ""
    place = node.folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"--folder {node.folder}: {place} is no folder that you can write to")
    free = shutil.disk_usage(place).free
    if free < LEAST_DISK:
        raise UserError(f"--folder {node.folder}: only {free / 2**20:.0f} MiB of disk are free")
    return f"{node.folder} can be written, {free / 2**30:.0f} GiB are free"


def _policy(node: Joining) -> str:
    if node.folder is None and node.policy is None:
        return ""
    file = node.policy or (node.folder or Path()) / policy.FILE
    beside = node.key.parent / policy.FILE if node.key else file
    if not file.is_file() and beside.is_file():
        raise UserError(f"{beside} lies beside the key, and the node reads {file}: move it there")
    if node.key and node.folder and not node.policy:
        key_folder.require(node.key, node.folder)
    if not file.is_file():
        return f"there is no {file}: the defaults hold (docs/policy.md)"
    rules = policy.read(file)
    if node.ca and rules.coordinators:
        called = keys.coordinator_digest(node.ca)
        if called not in rules.coordinators:
            raise UserError(f"coordinators in {file} do not name that of {node.ca}, {called}")
        return f"{file} allows this coordinator, {called[:16]}"
    return f"{file} can be read; it names no coordinator"


def _data(node: Joining) -> str | Finding:
    """With what it holds: a folder too high or too low is seen by that."""
    if node.data is None:
        return ""
    if not node.data.is_dir():
        raise UserError(f"--data {node.data} is no folder")
    held = sorted(
        f"{path.name}/" if path.is_dir() else path.name
        for path in node.data.iterdir()
        if not path.name.startswith(".")
    )
    if not held:
        return Finding(True, f"--data {node.data} is empty", doubtful=True)
    named = ", ".join(held[:MOST_NAMED]) + (", …" if held[MOST_NAMED:] else "")
    return f"{node.data} holds {named}: what recipes name (world.source) lies in it"


def _model(node: Joining) -> str | Finding:
    """Recipes of language models name a folder in the node's own; most call it so."""
    if node.folder is None or (node.folder / MODEL).exists():
        return ""
    with contextlib.suppress(UserError):  # `_policy` has told it
        if policy.ANY not in policy.read(node.policy or node.folder / policy.FILE).models:
            return ""
    place = node.folder / MODEL
    return Finding(
        True,
        f"there is no {place}: for a language model copy the coordinator's there (cp -r "
        f"{MODEL} {place})",
        doubtful=True,
    )
