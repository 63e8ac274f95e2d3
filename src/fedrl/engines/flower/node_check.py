"""`fedrl flower check`: would this node get in? Step by step, each with what to do if it fails.

    address    HOST:PORT is one, and this machine knows the name
    reach      something listens there
    TLS        its certificate is of the federation's CA (ca.pem), for this name, and valid now
    clock      it differs by less than signatures allow
    key        the SuperLink knows it, as that of this client
    own        its folder, policy, data and model (`own_check.py`)

A step that fails ends those that need it; files that are missing are told whether or not something
listens. The request that asks about the key changes nothing; if
it is refused, that is a line in the coordinator's log.
"""

from __future__ import annotations

import email.utils
import functools
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedrl.core.types import UserError
from fedrl.engines.flower import keys
from fedrl.engines.flower.adapter import node_auth
from fedrl.engines.flower.address import Address, parse
from fedrl.engines.flower.own_check import Finding, Joining, own

PATIENCE = 10.0
PATH, CLIENT = "/v1/fleet/check", "x-fedrl-client"
"""Where a SuperLink is asked who a key's owner is, and the header that says it: a number, or
nothing of a key that is filed under none. A node says there which client it is started as."""
ANOTHER_AUTHORITY = (18, 19, 20, 21, 7)
"""OpenSSL's: self-signed, an issuer that is not known, a signature that is not its."""
WRONG_NAME, NOT_YET, EXPIRED = (62, 64), 9, 10


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
        status, off, client = _asked(address, context, key, node.client)
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
    address: Address, context: ssl.SSLContext, key: ec.EllipticCurvePrivateKey, client: int | None
) -> tuple[int, float, str | None]:
    """The SuperLink's answer to a signed request, how far this clock is before its own, and as
    which client it knows the key. It hears as which client the node is started, so that its side
    knows of two that were mixed up."""
    said = {} if client is None else {CLIENT: str(client)}
    line = http.client.HTTPSConnection(
        address.host, address.port, timeout=PATIENCE, context=context
    )
    try:
        line.request("POST", PATH, headers=node_auth.signed_headers(key) | said)
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
            f"is --key another node's file? If not, use --client {filed}, or ask the coordinator"
        )
    return f"it is that of client {client}"
