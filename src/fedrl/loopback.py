"""A web server for people on this machine: where it listens, and whom it listens to.

Loopback alone is not a wall: any page in the same browser can send requests here. So the Host
header must be ours (no DNS rebinding), and what changes something must come from our own pages.
`fedrl play webshop` and `fedrl feedback` build on it.
"""

from __future__ import annotations

import errno
import socketserver
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedrl.types import UserError

LOOPBACK = "127.0.0.1"
PATIENCE = 20.0  # seconds for the rest of a request
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer; what a page may load and say to others is its own."""


class LoopbackServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 only; port 0 is any free one."""

    request_queue_size = 64

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        try:
            super().__init__((LOOPBACK, port), handler)
        except (OSError, OverflowError) as error:
            raise UserError(_why_not(port, error)) from error
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    def server_bind(self) -> None:
        """As the base class, without asking the network for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def addressed(self, request: BaseHTTPRequestHandler) -> bool:
        """Whether the request was sent to the address that was printed."""
        return request.headers.get("Host") in self.hosts

    def from_here(self, request: BaseHTTPRequestHandler) -> bool:
        """Whether no other page has sent it; what is no browser does not say where it is from."""
        origin = request.headers.get("Origin")
        return origin is None or origin in self.origins


def _why_not(port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return f"--port is {port}; choose one from 1 to 65535, or 0 for any free one"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port, or --port 0 for any free one"
    return f"port {port} cannot be opened ({error.strerror}); choose another with --port"
