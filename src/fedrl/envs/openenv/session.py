"""Sessions with an OpenEnv server: one WebSocket is one environment over there.

The wire is that of the packages `openenv-core` 0.2 to 0.3 and `openenv` to 0.10, JSON both ways:

    → {"type": "reset", "data": {"seed": 7}}          {"type": "step", "data": {the action}}
    ← {"type": "observation", "data": {"observation": {…}, "reward": 0.5, "done": false}}
    ← {"type": "error", "data": {"message": "…", "code": "EXECUTION_ERROR"}}

We speak it ourselves: the package's client brings a web framework along and takes a thread for each
session. A server is a stranger: whatever it sends, or does not send, ends as an `Answer` or as a
`ServerLost` of one line that tells nothing of an episode.
"""

from __future__ import annotations

import asyncio
import json
import math
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from fedrl.core.types import Json, Shareable, UserError
from fedrl.envs.side_by_side import call_soon

LARGEST = 4 * 2**20
"""Bytes of an answer; a page of text has a thousandth of that."""
AGENTS_FAULT = ("VALIDATION_ERROR", "EXECUTION_ERROR")
"""Codes of errors that an action can cause."""
LONGEST_ERROR = 500
"""Characters of such an error that the agent is told."""
OPENING = 16
"""Connections that are opened at once: a server's queue of new ones is short."""
LOCAL = ("127.0.0.1", "localhost", "::1")


class ServerLost(UserError):
    """The server cannot be reached, hangs, or answers what is no answer."""

    def __init__(self, why: str) -> None:
        super().__init__(Shareable(f"the OpenEnv server {why}"))


class Answer(NamedTuple):
    observation: Json
    reward: float
    done: bool
    error: str = ""  # why the action was not taken


@dataclass(frozen=True)
class Place:
    """Where a server is, and how long it may take, in seconds."""

    url: str
    patience: float

    @property
    def socket(self) -> str:
        scheme, _, rest = self.url.rstrip("/").partition("://")
        return f"{'wss' if scheme == 'https' else 'ws'}://{rest}/ws"

    @property
    def local(self) -> bool:
        """On this machine: no proxy leads there."""
        return urlsplit(self.url).hostname in LOCAL


class Session:
    """One environment of the server, for one episode after another."""

    def __init__(self, connection: ClientConnection, patience: float) -> None:
        self.connection, self.patience = connection, patience

    async def reset(self, arguments: Json) -> Answer:
        answer = await self._ask("reset", arguments)
        if answer.error:
            await self._give_up("cannot begin an episode")
        return answer

    async def step(self, action: Json) -> Answer:
        return await self._ask("step", action)

    async def close(self) -> None:
        with suppress(OSError, WebSocketException):
            await self.connection.close()

    async def _ask(self, type: str, data: Json) -> Answer:
        try:
            async with asyncio.timeout(self.patience):
                with suppress(WebSocketException):  # a server that is full says so and hangs up
                    await self.connection.send(json.dumps({"type": type, "data": data}))
                text = await self.connection.recv()
        except TimeoutError:
            await self._give_up(f"did not answer within {self.patience:g} s")
        except (OSError, WebSocketException):
            await self._give_up("closed the connection")
        try:
            return read(json.loads(text, parse_constant=_no_number))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            await self._give_up("answered what is no answer of OpenEnv")

    async def _give_up(self, why: str) -> NoReturn:
        await self.close()
        raise ServerLost(why)


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def read(message: Json) -> Answer:
    """A message of the wire; one that is none raises."""
    data = message["data"]
    if not isinstance(data, Mapping):
        raise TypeError
    if message["type"] == "error":
        if data["code"] == "CAPACITY_REACHED":
            most = data.get("max_sessions")
            raise ServerLost(
                f"takes {most if isinstance(most, int) else 'too few'} sessions at once, and a "
                "rollout needs one per episode: raise its max_concurrent_envs, or lower "
                "algorithm.tasks, group and eval_tasks"
            )
        if data["code"] not in AGENTS_FAULT:
            raise ValueError
        return Answer({}, 0.0, False, f"Error: {data['message']}"[:LONGEST_ERROR])
    observation, reward, done = data["observation"], data.get("reward"), data.get("done", False)
    reward = 0.0 if reward is None else float(reward)
    if message["type"] != "observation" or not isinstance(observation, dict):
        raise TypeError
    if not isinstance(done, bool) or not math.isfinite(reward):
        raise TypeError
    return Answer(observation, reward, done)


class Sessions:
    """Sessions that are kept from one episode to the next."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._idle: deque[Session] = deque()  # any thread may give one back, at any moment
        self._opening = asyncio.Semaphore(OPENING)

    async def begin(self, arguments: Json) -> tuple[Session, Answer]:
        """An episode in a session of its own; a kept one may have ended meanwhile, unnoticed."""
        with suppress(ServerLost, IndexError):
            kept = self._idle.pop()
            return kept, await kept.reset(arguments)
        session = Session(await self._open(), self.place.patience)
        return session, await session.reset(arguments)

    async def _open(self) -> ClientConnection:
        place = self.place
        try:
            async with self._opening:
                return await connect(
                    place.socket,
                    open_timeout=place.patience,
                    close_timeout=1.0,
                    ping_interval=None,
                    max_size=LARGEST,
                    proxy=None if place.local else True,
                )
        except TimeoutError as error:
            raise ServerLost(f"did not answer within {place.patience:g} s") from error
        except (OSError, WebSocketException, ValueError) as error:
            raise ServerLost(f"cannot be reached ({type(error).__name__})") from error

    def lend(self, borrower: object, session: Session) -> None:
        """The session comes back when nothing refers to its borrower any more."""
        weakref.finalize(borrower, self._idle.append, session).atexit = False

    def close(self) -> None:
        while self._idle:
            call_soon(self._idle.pop().close())
