"""As much of a SuperLink as `fedrl flower check` asks: TLS, a clock, and whose key it is."""

from __future__ import annotations

import email.utils
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedrl.engines.flower.adapter import superlink
from fedrl.engines.flower.node_check import CLIENT


@contextmanager
def listening(
    hub: Path,
    registered: bool = True,
    ahead: float = 0.0,
    client: str = "0",
    heard: list[str | None] | None = None,
) -> Iterator[str]:
    """A SuperLink that knows a key or not, by the same rules; its clock may be wrong. `heard` gets
    what each node calls itself."""

    class Reply(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if heard is not None:
                heard.append(self.headers.get(CLIENT))
            known = superlink.signing_key({k.lower(): v for k, v in self.headers.items()})
            self.send_response_only(200 if known and registered else 401)
            self.send_header(CLIENT, client)
            self.send_header("Date", email.utils.formatdate(time.time() + ahead, usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Reply)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hub / "server.pem", hub / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # who trusts it not leaves
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
