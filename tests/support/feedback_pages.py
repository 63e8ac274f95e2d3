"""Questions and a running feedback page, for the tests of both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fedrl.feedback.page import FeedbackServer, open_page
from fedrl.feedback.queries import Query
from fedrl.feedback.store import Folder


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
