"""Questions and a running feedback page, for the tests of both."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedrl.cli import call
from fedrl.feedback.page import FeedbackServer, open_page
from fedrl.feedback.queries import Query
from fedrl.feedback.store import Folder, client_folder


def rate(name: str, text: str = "", score: float = 3.7) -> Query:
    return Query(name, "rate", (f"key-{name}",), (text or f"item {name}",), (score,))


def compare(name: str, first: str, second: str) -> Query:
    return Query(name, "compare", ("k1", "k2"), (first, second), (0.9, 0.1))


@contextmanager
def running(folder: Folder, client: int = 3, **options) -> Iterator[FeedbackServer]:
    with open_page(folder, client, **options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def request(server, method, path, body=None, key=True, headers=None, raw=None):
    """Status and JSON (or text) of one request."""
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    sent = {"X-Fedrl-Key": server.key} if key is True else {"X-Fedrl-Key": key} if key else {}
    if body is not None:
        raw = json.dumps(body)
        sent["Content-Type"] = "application/json"
    line.request(method, path, raw, sent | (headers or {}))
    reply = line.getresponse()
    text = reply.read().decode()
    line.close()
    kind = reply.headers.get_content_type()
    return reply.status, json.loads(text) if kind == "application/json" else text


def live_run(
    place: Path, recipe: str, rating_queries: int = 6, preference_queries: int = 0
) -> tuple[Path, Folder]:
    """A run of two clients after its first round, and the private folder of client 1."""
    pytest.importorskip("numba", reason="FedRLHF's network needs the extra classic")
    words = {
        "rounds": 1, "out": place / "runs", "federation.clients": 2,
        "algorithm.rating_queries": rating_queries,
        "algorithm.preference_queries": preference_queries,
        "algorithm.feedback": "live", "algorithm.feedback-folder": place / "people",
    }  # fmt: skip
    flags = [word for key, value in words.items() for word in (f"--{key}", str(value))]
    assert call(["run", recipe, *flags]) == 0
    (run,) = (place / "runs").glob("*/*")
    return run, Folder(client_folder(place / "people", 1))
