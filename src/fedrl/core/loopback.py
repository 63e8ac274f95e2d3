"""A web server for people on this machine: where it listens, and whom it listens to.

Loopback alone is not a wall: any page in the same browser can send requests here. So the Host
header must be ours (no DNS rebinding), and what changes something must come from our own pages.
`fedrl play webshop` and `fedrl feedback` build on it. `length` is for every HTTP server of ours.
"""

from __future__ import annotations

import errno
import re
import socketserver
import ssl
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from fedrl.core.types import UserError

LOOPBACK = "127.0.0.1"
LENGTH = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
PATIENCE = 20.0  # seconds for the rest of a request
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer; what a page may load and say to others is its own."""


def length(told: Sequence[str]) -> int | None:
    """Bytes of a request's body, by its Content-Length headers; None where they do not say.

    Read once, and the number that is compared is the number that is read: one header, decimal
    digits, no sign, space or leading zero, at most 18 of them.
    """
    return int(told[0]) if len(told) == 1 and LENGTH.fullmatch(told[0]) else None


class Listen(NamedTuple):
    """The name that people type, the address behind it, and TLS if there is any."""

    name: str
    address: str
    tls: ssl.SSLContext | None = None


HERE = Listen(LOOPBACK, LOOPBACK)


class LoopbackServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 unless it is told elsewhere; port 0 is any free one."""

    request_queue_size = 64

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler], at: Listen = HERE) -> None:
        try:
            super().__init__((at.address, port), handler)
        except (OSError, OverflowError) as error:
            raise UserError(_why_not(port, error)) from error
        names = {at.name.lower(), at.address} | (
            {LOOPBACK, "localhost"} if at.name == LOOPBACK else set()
        )
        standard = 443 if at.tls else 80  # browsers leave it out
        ends = ["", f":{standard}"] if self.server_port == standard else [f":{self.server_port}"]
        self.hosts = {name + end for name in names for end in ends}
        scheme = "https" if at.tls else "http"
        self.origins = {f"{scheme}://{host}" for host in self.hosts}
        self.site = f"{scheme}://{at.name}:{self.server_port}"
        if at.tls is not None:  # shaken hands on in the thread of each request
            self.socket = at.tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def server_bind(self) -> None:
        """As the base class, without asking the network for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle, or does not like a certificate, is no error."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError | TimeoutError):
            super().handle_error(request, client_address)

    def addressed(self, request: BaseHTTPRequestHandler) -> bool:
        """Whether the request was sent to the address that was printed."""
        return request.headers.get("Host", "").lower() in self.hosts  # names have no case

    def from_here(self, request: BaseHTTPRequestHandler) -> bool:
        """Whether no other page has sent it; what is no browser does not say where it is from."""
        origin = request.headers.get("Origin")
        return origin is None or origin in self.origins


def body_length(request: BaseHTTPRequestHandler) -> int | None:
    """As `length`; a body in chunks has none."""
    if "Transfer-Encoding" in request.headers:
        return None
    return length(request.headers.get_all("Content-Length", []))


def _why_not(port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return f"--port is {port}; choose one from 1 to 65535, or 0 for any free one"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port, or --port 0 for any free one"
    return f"port {port} cannot be opened ({error.strerror}); choose another with --port"
