"""Where the page listens: on this machine, or on the organisation's own network if told so.

Beyond loopback it takes three things: an address that is named (`--host`), people with links of
their own (`--people`), and TLS, or the plain word that there is none (`--plain-http`): without it
whoever listens on the way reads links, questions and answers.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from fedrl.core.loopback import HERE, Listen
from fedrl.core.types import UserError


def listening(
    host: str,
    people: Sequence[str],
    certificate: Path | None,
    private_key: Path | None,
    plain: bool,
) -> Listen:
    """Where to listen; a mistake where that would show something to somebody unasked."""
    if (certificate is None) != (private_key is None):
        raise UserError("--certificate and --private-key belong together: name both")
    if certificate is not None and plain:
        raise UserError("--plain-http is for a page without TLS; leave it out, or the certificate")
    tls = _context(certificate, private_key) if certificate and private_key else None
    if not host:
        if plain:
            raise UserError("--plain-http is about --host: on this machine there is no network")
        return HERE._replace(tls=tls)
    address = _resolved(host)
    if address.is_loopback:
        return Listen(host, str(address), tls)
    if address.is_unspecified:
        raise UserError(f"--host is {host}: name the address that people type, not all of them")
    if not people:
        raise UserError(
            f"--host is {host}, which others can reach: name who answers with --people, so that "
            "each has a link of their own"
        )
    if tls is None and not plain:
        raise UserError(
            f"--host is {host}, which others can reach: name --certificate and --private-key, or "
            "say --plain-http if nobody can listen on the way"
        )
    return Listen(host, str(address), tls)


def _resolved(host: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(socket.gethostbyname(host))
    except (OSError, ValueError) as error:
        raise UserError(f"--host is {host}, which this machine does not know") from error


def _context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for file in (certificate, private_key):
        if not file.is_file():
            raise UserError(f"{file} does not exist")
    try:
        context.load_cert_chain(certificate, private_key)
    except (ssl.SSLError, OSError) as error:
        raise UserError(
            f"{certificate} and {private_key} are no certificate and its key: {error}"
        ) from error
    return context
