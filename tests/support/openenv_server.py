"""A small server that speaks OpenEnv's wire in this process, and can be made to misbehave.

Its game: a number from 1 to 7 that the seed decides; three guesses, and each answer says between
which numbers it lies. `tests/oracles/test_openenv_servers.py` holds it to the real package.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

DESCRIPTION = "Find a number from 1 to 7 in three guesses."
SCHEMA = {
    "action": {
        "properties": {
            "metadata": {"type": "object"},
            "guess": {"type": "integer", "minimum": 1, "maximum": 7},
        },
        "required": ["guess"],
    },
    "observation": {"properties": {"message": {"type": "string"}}},
    "state": {},
}


@dataclass
class StandIn:
    """`mode` is how it answers steps: well, hang, nonsense, nan, close."""

    url: str = ""
    mode: str = "well"
    hang_ups: int = 0  # so many of the next steps end their connection
    capacity: int = 1000
    sessions: int = 0  # open now
    opened: int = 0
    most: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)  # (connection, guess)
    resets: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pages: dict[str, object] = field(
        default_factory=lambda: {"/schema": SCHEMA, "/metadata": {"description": DESCRIPTION}}
    )

    def page(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/ws":
            return None
        if request.path not in self.pages:
            return connection.respond(HTTPStatus.NOT_FOUND, "")
        body = json.dumps(self.pages[request.path]).encode()
        headers = Headers([("Content-Length", str(len(body))), ("Connection", "close")])
        return Response(200, "OK", headers, body)

    def play(self, connection: ServerConnection) -> None:
        with self.lock:
            self.sessions += 1
            self.opened += 1
            number = self.opened
            self.most = max(self.most, self.sessions)
            full = self.sessions > self.capacity
        try:
            if full:
                detail = {
                    "message": "full",
                    "code": "CAPACITY_REACHED",
                    "max_sessions": self.capacity,
                }
                connection.send(json.dumps({"type": "error", "data": detail}))
                return
            self._episodes(connection, number)
        except ConnectionClosed:
            pass
        finally:
            with self.lock:
                self.sessions -= 1

    def _episodes(self, connection: ServerConnection, number: int) -> None:
        low, high, secret, left = 1, 7, 1, 3
        for text in connection:
            message = json.loads(text)
            data = message["data"]
            if message["type"] == "reset":
                self.resets.append(data)
                low, high, secret, left = 1, 7, int(data.get("seed", 0)) % 7 + 1, 3
                connection.send(_observation(low, high, None, False))
                continue
            if self.mode == "hang":
                time.sleep(1.0)
            elif self.mode == "close":
                return
            elif self.hang_ups:
                self.hang_ups -= 1
                return
            elif self.mode == "nonsense":
                connection.send("<html>busy</html>")
            elif self.mode == "nan":
                connection.send(
                    '{"type": "observation", "data": {"observation": {}, "reward": NaN}}'
                )
            elif not 1 <= data.get("guess", 0) <= 7:
                detail = {"message": "Invalid message", "code": "VALIDATION_ERROR"}
                connection.send(json.dumps({"type": "error", "data": detail}))
            else:
                guess = data["guess"]
                self.steps.append((number, guess))
                left -= 1
                low = max(low, guess + 1) if guess < secret else low
                high = min(high, guess - 1) if guess > secret else high
                found = guess == secret
                connection.send(_observation(low, high, float(found), found or not left))


def _observation(low: int, high: int, reward: float | None, done: bool) -> str:
    observation = {"message": f"It lies between {low} and {high}."}
    data = {"observation": observation, "reward": reward, "done": done}
    return json.dumps({"type": "observation", "data": data})


@contextmanager
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    with serve(
        server.play, "127.0.0.1", 0, process_request=server.page, ping_interval=None
    ) as listening:
        server.url = f"http://127.0.0.1:{listening.socket.getsockname()[1]}"
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
