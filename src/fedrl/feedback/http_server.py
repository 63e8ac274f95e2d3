"""The HTTP server of a page for one person: text or JSON, and a key for what is private.

Other people on a shared machine can reach loopback, too. So what is private needs a key that only
the printed address holds, the key travels in a header that other pages may not send (no cookies, no
CORS), and the pages load nothing from elsewhere. Nothing is logged.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from fedrl.core import loopback
from fedrl.core.loopback import HERE, PATIENCE, Listen, LoopbackServer
from fedrl.core.types import UserError

Json = Mapping[str, "Json"] | Sequence["Json"] | str | float | None
LONGEST_BODY = 256 * 1024
KEY_HEADER = "X-Fedrl-Key"
HEADERS = loopback.HEADERS | {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Refused(Exception):
    """A request that gets an error status and one sentence."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class KeyedServer(LoopbackServer):
    """Gives what passes the guard to `answer`."""

    def __init__(self, port: int, answer: Callable[[Request], None], at: Listen = HERE) -> None:
        self.answer = answer
        super().__init__(port, Request, at)

    def told(self, error: UserError) -> str:
        """What a visitor reads of a mistake."""
        return str(error)


class Request(BaseHTTPRequestHandler):
    """A GET or a POST (`command`) of text or JSON."""

    server: KeyedServer
    server_version, sys_version = "fedrl", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        self._guarded()

    def do_OPTIONS(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This page answers GET and POST.")

    do_POST = do_GET
    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: not even addresses belong in a log."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for what it cannot read."""
        self._refuse(HTTPStatus(code), HTTPStatus(code).phrase)

    def require(self, key: str) -> None:
        """Refuse a request that does not bring the key."""
        self.require_one({key: ""})

    def require_one(self, keys: Mapping[str, str]) -> str:
        """Whose key the request brings; refused if it is nobody's. All are compared, always."""
        brought = self.headers.get(KEY_HEADER, "").encode("utf-8", "replace")
        whose = [one for key, one in keys.items() if secrets.compare_digest(brought, key.encode())]
        if not whose:
            raise Refused(HTTPStatus.FORBIDDEN, "This address lacks its key.")
        return whose[0]

    def body(self) -> Json:
        """The request's JSON."""
        length = loopback.body_length(self)
        if length is None:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "The request does not say how long it is.")
        if length > LONGEST_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That was too much at once.")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "This page reads JSON.")
        try:
            body: Json = json.loads(self.rfile.read(length))
            return body
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

    def begin_events(self) -> None:
        """Server-sent events follow, as many as there will be: `send_event`."""
        self.send_response(HTTPStatus.OK)
        for name, value in ({"Content-Type": "text/event-stream; charset=utf-8"} | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()

    def send_event(self, value: Json | None) -> None:
        """None is a comment, which only finds out whether somebody is still there."""
        line = ":" if value is None else f"data: {json.dumps(value)}"
        self.wfile.write(f"{line}\n\n".encode())

    def send_json(self, value: Json, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send(json.dumps(value), "application/json", status)

    def _guarded(self) -> None:
        try:
            if not self.server.addressed(self):
                raise Refused(
                    HTTPStatus.MISDIRECTED_REQUEST, "This page answers only to its own address."
                )
            if not self.server.from_here(self):
                raise Refused(HTTPStatus.FORBIDDEN, "This came from another page.")
            self.server.answer(self)
        except Refused as refusal:
            self._refuse(refusal.status, refusal.text)
        except UserError as error:  # a full disk, say: the page keeps what it has and tries again
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, self.server.told(error))

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self.send_json({"error": text}, status)
