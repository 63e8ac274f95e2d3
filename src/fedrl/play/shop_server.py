"""`fedrl play webshop`: the shop as a web page for people, on this machine only.

A POST must come from our own pages, cookies are strict, and the pages allow no scripts and no
frames; `fedrl.core.loopback` sees to the rest.
"""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedrl.core import loopback
from fedrl.core.loopback import LOOPBACK, PATIENCE, LoopbackServer
from fedrl.core.package_files import package_text
from fedrl.core.types import UserError
from fedrl.envs.webshop.shop import WebShop
from fedrl.play import shop_page
from fedrl.play.shop_visitors import PUT_AWAY, STALE, Visitor, Visitors

LONGEST_BODY = 64 * 1024
DRAINED = 8 * 1024 * 1024  # read and forgotten, so that the refusal reaches the browser
HEADERS = loopback.HEADERS | {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
}
TEXTS = {
    HTTPStatus.BAD_REQUEST: "The request could not be read.",
    HTTPStatus.MISDIRECTED_REQUEST: "The shop answers only to the address that it has printed.",
    HTTPStatus.FORBIDDEN: "The shop did nothing: this came from elsewhere, or without the shop's "
    "cookie. Allow cookies for this address and start again.",
    HTTPStatus.NOT_FOUND: "There is nothing at this address.",
    HTTPStatus.METHOD_NOT_ALLOWED: "The shop answers GET, HEAD and POST.",
    HTTPStatus.LENGTH_REQUIRED: "The request does not say how long it is.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "That was too much text. A few words find more.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The shop reads only its own forms.",
}


class ShopServer(LoopbackServer):
    """`serve_forever` in a thread or here; `url` is where it is."""

    def __init__(
        self, shop: WebShop, port: int, task: str | None, split: str, visitors: int
    ) -> None:
        self.visitors = Visitors(shop, task, split, visitors)
        # One command at a time: nobody notices, and the world need not be safe for threads.
        self.lock = threading.Lock()
        super().__init__(port, Handler)
        self.url = f"http://{LOOPBACK}:{self.server_port}/"
        # Cookies do not know ports: two shops on one machine need two names.
        self.cookie = f"fedrl_shop_{self.server_port}"


def open_shop(
    shop: WebShop,
    port: int = 0,
    task: str | None = None,
    split: str = "valid",
    visitors: int = 100,
) -> ShopServer:
    """The server, listening but not yet answering. `task` is everybody's first goal (else one of
    `split` by chance), port 0 any free one; at most `visitors` people are remembered."""
    return ShopServer(shop, port, task, split, visitors)


def serve(
    shop: WebShop,
    port: int = 0,
    task: str | None = None,
    split: str = "valid",
    open_browser: bool = False,
) -> int:
    """Serve until Ctrl-C; the exit code."""
    with open_shop(shop, port, task, split) as server:
        try:
            print(f"the shop is open at {server.url} (Ctrl-C closes it)", flush=True)
            if open_browser:
                threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nthe shop is closed")
    return 0


class Refused(Exception):
    """A request that gets a page with an error status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """GET / (with ?task=…), the style sheet and the icon; POST search, command and goal."""

    server: ShopServer
    server_version, sys_version = "fedrl", ""
    timeout = PATIENCE
    given = ""  # the secret of a visitor who came in with this request

    def do_GET(self) -> None:
        self._guarded(self._get)

    def do_HEAD(self) -> None:
        self._guarded(self._get)

    def do_POST(self) -> None:
        self._guarded(self._post)

    def do_OPTIONS(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal stays quiet: the page says what happens."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for what it cannot read."""
        self._refuse(HTTPStatus(code))

    def _guarded(self, answer: Callable[[], None]) -> None:
        try:
            if not self.server.addressed(self):
                raise Refused(HTTPStatus.MISDIRECTED_REQUEST)
            answer()
        except Refused as refusal:
            self._refuse(refusal.status)

    def _get(self) -> None:
        path, fields = self._address()
        if path == "/shop.css":
            self._send(HTTPStatus.OK, package_text(__package__, "shop.css"), "text/css")
        elif path == "/icon.svg":
            self._send(HTTPStatus.OK, package_text(__package__, "shop.svg"), "image/svg+xml")
        elif path != "/":
            raise Refused(HTTPStatus.NOT_FOUND)
        elif self.command == "HEAD":
            self._send(HTTPStatus.OK, "")
        elif "task" in fields:
            with self.server.lock:
                _take_goal(self._visitor(), fields["task"].strip())
            self._home()  # a reload of an address with ?task= would begin anew
        else:
            with self.server.lock:
                text = shop_page.page(self._visitor())
            self._send(HTTPStatus.OK, text)

    def _post(self) -> None:
        if not self.server.from_here(self):
            raise Refused(HTTPStatus.FORBIDDEN)
        path, _ = self._address()
        fields = self._body()
        if path not in ("/search", "/command", "/goal"):
            raise Refused(HTTPStatus.NOT_FOUND)
        if not self._token():
            raise Refused(HTTPStatus.FORBIDDEN)
        with self.server.lock:
            visitor = self._visitor()
            if fields.get("at") != str(visitor.at):
                visitor.note = visitor.note if self.given else STALE
            elif path == "/search":
                visitor.search(fields.get("query", ""))
            elif path == "/goal":
                visitor.take_goal(self.server.visitors.another())
            else:
                visitor.send(fields.get("do", ""), typed="typed" in fields)
            place = shop_page.place(visitor)
        self._home(place)

    def _address(self) -> tuple[str, dict[str, str]]:
        try:
            address = urlsplit(self.path)
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST) from error
        return address.path, _fields(address.query)

    def _body(self) -> dict[str, str]:
        length = loopback.body_length(self)
        if length is None:
            raise Refused(HTTPStatus.LENGTH_REQUIRED)
        if length > LONGEST_BODY:
            self._drain(length)
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(length)
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        return _fields(body.decode("utf-8", "replace"))

    def _drain(self, length: int) -> None:
        """A browser that is still sending does not read the refusal."""
        left = min(length, DRAINED)
        while left > 0 and (piece := self.rfile.read(min(left, LONGEST_BODY))):
            left -= len(piece)

    def _token(self) -> str:
        for pair in self.headers.get("Cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self.server.cookie:
                return value
        return ""

    def _visitor(self) -> Visitor:
        """Who this is; a new one where the cookie is unknown. Call it with the lock held."""
        token = self._token()
        visitor = self.server.visitors.find(token)
        if visitor is None:
            self.given, visitor = self.server.visitors.admit(PUT_AWAY if token else "")
        return visitor

    def _home(self, place: str = "/") -> None:
        self._send(HTTPStatus.SEE_OTHER, "", extra={"Location": place})

    def _refuse(self, status: HTTPStatus) -> None:
        text = TEXTS.get(status, status.description or status.phrase)
        allow = {"Allow": "GET, HEAD, POST"} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._send(status, shop_page.refusal(status.phrase, text), extra=allow)

    def _send(
        self,
        status: HTTPStatus,
        text: str,
        kind: str = "text/html",
        extra: Mapping[str, str] | None = None,
    ) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", **HEADERS, **(extra or {})}
        if self.given:
            headers["Set-Cookie"] = (
                f"{self.server.cookie}={self.given}; Path=/; HttpOnly; SameSite=Strict"
            )
        if self.command != "HEAD":
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _take_goal(visitor: Visitor, task: str) -> None:
    try:
        visitor.take_goal(task)
    except UserError:
        visitor.note = f"The shop has no goal “{task[:40]}”."


def _fields(text: str) -> dict[str, str]:
    """The fields of a query or a form; of several values of a name the first counts."""
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST) from error
    return {name: values[0] for name, values in fields.items()}
