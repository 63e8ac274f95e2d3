"""A web server for one person on this machine: nothing else in the browser may talk to it.

Loopback alone is not a wall: any page in the same browser can send requests here, and so can other
people on a shared machine. So the Host header must be ours (no DNS rebinding), what is private
needs a key that only the printed address holds, the key travels in a header that other pages may
not send (no cookies, no CORS), and the pages load nothing from elsewhere. Nothing is logged.
"""

from __future__ import annotations

import errno
import json
import secrets
import socketserver
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedrl.types import UserError

LOOPBACK = "127.0.0.1"
LONGEST_BODY = 256 * 1024
PATIENCE = 20.0  # seconds for the rest of a request
KEY_HEADER = "X-Fedrl-Key"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """A request that gets an error status and one sentence."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class LoopbackServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 only, and gives what passes the guard to `answer`."""

    request_queue_size = 64

    def __init__(self, port: int, answer: Callable[[Request], None]) -> None:
        self.answer = answer
        try:
            super().__init__((LOOPBACK, port), Request)
        except (OSError, OverflowError) as error:
            raise UserError(_why_not(port, error)) from error
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}

    def server_bind(self) -> None:
        """As the base class, without asking the network for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _why_not(port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return f"--port is {port}; choose one from 1 to 65535, or 0 for any free one"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port, or --port 0 for any free one"
    return f"port {port} cannot be opened ({error.strerror}); choose another with --port"


class Request(BaseHTTPRequestHandler):
    """A GET or a POST (`command`) of text or JSON."""

    server: LoopbackServer
    server_version, sys_version = "fedrl", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        self._guarded()

    def do_OPTIONS(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This page answers GET and POST.")

    do_POST = do_GET
    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: not even addresses belong in a log."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for what it cannot read."""
        self._refuse(HTTPStatus(code), HTTPStatus(code).phrase)

    def require(self, key: str) -> None:
        """Refuse a request that does not bring the key."""
        brought = self.headers.get(KEY_HEADER, "").encode("utf-8", "replace")
        if not secrets.compare_digest(brought, key.encode()):
            raise Refused(HTTPStatus.FORBIDDEN, "This address lacks its key.")

    def body(self) -> Any:
        """The request's JSON."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "The request does not say how long it is.")
        if int(length[:20]) > LONGEST_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That was too much at once.")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "This page reads JSON.")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "The request could not be read.") from error

    def send(self, text: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        sent = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (sent | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send(json.dumps(value), "application/json", status)

    def _guarded(self) -> None:
        try:
            if self.headers.get("Host") not in self.server.hosts:
                raise Refused(
                    HTTPStatus.MISDIRECTED_REQUEST, "This page answers only to its own address."
                )
            origin = self.headers.get("Origin")
            if origin is not None and origin not in {f"http://{h}" for h in self.server.hosts}:
                raise Refused(HTTPStatus.FORBIDDEN, "This came from another page.")
            self.server.answer(self)
        except Refused as refusal:
            self._refuse(refusal.status, refusal.text)
        except UserError as error:  # a full disk, say: the page keeps what it has and tries again
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self.send_json({"error": text}, status)
