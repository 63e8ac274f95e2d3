"""What a SuperLink may be asked, decided from a request's head before its body is read.

    path           from              must show                                largest body
    /v1/fleet/…    anywhere          a registered key, and a signature by it  a message
    …/push-object                    the same                                 a piece
    all others     drivers' machines the secret (`driver_auth`)               a message, or a piece

Flower itself parses a body first and asks who sent it then: 36 MB of empty protobuf messages are
1.1 GB of objects, for anybody. Control calls (start a run, register a node) it grants to everybody.
Here who has shown nothing gets nothing read, users of the same machine too. The bodies of those who
have are read here, in bounded time; together they may take a bounded part of the memory, one peer
a part of that. Who finds it taken waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, MutableMapping
from typing import Any

from fedrl.config.flower import LARGEST_PIECE_MB
from fedrl.core.loopback import length
from fedrl.core.types import JsonValue
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower import driver_auth
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.keys import pem_digest
from fedrl.engines.flower.node_check import CLIENT
from fedrl.engines.flower.node_check import PATH as CHECK
from fedrl.engines.flower.owner_log import Seldom
from fedrl.engines.flower.superlink_waiting import Announced, Reply, WaitingNodes

NODES = "/v1/fleet/"
ACTIVATE, REGISTER = f"{NODES}activate-node", f"{NODES}register-node"
PULL, HEARTBEAT = f"{NODES}pull-messages", f"{NODES}send-node-heartbeat"
CONFIRM = f"{NODES}confirm-message-received"
DRIVERS_MESSAGE, DRIVERS_PIECE = "/v1/runtime/push-messages", "/v1/runtime/push-object"
PIECES = (f"{NODES}push-object", DRIVERS_PIECE)
LARGEST_PIECE = int(LARGEST_PIECE_MB * 1e6) + 2**20
LARGEST_QUESTION = 2**10
"""Bytes of a node's question that may be kept: for messages until there is one."""
LARGEST_MESSAGE = 2**20
"""Bytes. A message names its pieces, each in some 80 bytes: 3 GB in the smallest pieces."""
PATH, HOST = re.compile(r"[A-Za-z0-9/_.-]*"), re.compile(r"[A-Za-z0-9._:\[\]-]*")
"""Nothing that could make one path of another where a URL is put together from both."""
COSTS, PIECE_COSTS = 40, 5
"""Bytes of memory that a byte of a body may come to: 2 bytes are a protobuf message, and a piece is
copied on its way into the store."""
MEMORY, MEMORY_EACH = 2**29, 2**28
"""Bytes for requests under way, of all and of one peer."""
BODY_SECONDS, SLOWEST = 30.0, 2**15
"""A body may take so long, and longer if it comes with so many bytes a second."""
ANSWER_SECONDS = 300.0
TOLD_SECONDS = 5.0
"""For the rest of a small request that is refused, so that its sender reads why."""
REFUSALS = (400, 401, 403, 404, 408, 411, 412, 413)
"""HTTP statuses: ours, and Flower's."""
KEY, NUMBER = "fedrl.key", re.compile(r"[0-9]{1,6}")
"""Where a request's scope has the key that has signed it; what a node may call itself."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Signer = Callable[[dict[str, str]], bytes | None]
"""The public key whose owner has signed a request's headers, or None."""
Reader = Callable[[bytes, bytes], Announced]
"""What a driver's request, and the SuperLink's answer to it, have announced."""


class Refused(Exception):
    """A request that gets an HTTP status and nothing else; `read` if its body is here."""

    def __init__(self, status: int, read: bool = False) -> None:
        super().__init__(status)
        self.status, self.read = status, read


class Gone(Exception):
    """Who asked has closed the connection, or does not take the answer."""


class Guard:
    """An ASGI application that passes on what the sender may ask.

    `insiders` are addresses from which runs may be driven, `node_of` says which node's a public key
    is: its number, or 0 for nobody's. `opened` lets nodes register themselves, with a key that they
    make up: on loopback. With `announced` nodes' questions wait for messages.
    """

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        insiders: Collection[str],
        secret: bytes,
        signer: Signer,
        node_of: Callable[[bytes], int],
        opened: bool = False,
        audit: CoordinatorAudit | None = None,
        announced: Reader | None = None,
    ) -> None:
        self.announced, self.waiting = announced, WaitingNodes()
        self.audit = audit or CoordinatorAudit(None)
        self.app = app
        self.insiders = frozenset(insiders)
        self.secret = secret
        self.signer = signer
        self.node_of = node_of
        self.opened = opened
        self.client_of: Callable[[bytes], str] = lambda key: ""
        self.memory = Memory()
        self._seldom = Seldom()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def logged(event: Scope) -> None:
            told = scope.get("path") == ACTIVATE or event.get("status") in REFUSALS
            if event["type"] == "http.response.start" and told:
                await asyncio.to_thread(self._log, scope, event["status"])
            await send(event)

        try:
            await self._answer(scope, receive, logged)
        except Refused as refused:
            if not refused.read:
                await _drained(scope, receive)
            head = [(b"connection", b"close"), (b"content-length", b"0")]
            await logged({"type": "http.response.start", "status": refused.status, "headers": head})
            await send({"type": "http.response.body", "body": b""})
        except Gone:  # uvicorn closes what has no answer
            self._seldom.say(f"gave up {_who_and_what(scope)}")

    def _log(self, scope: Scope, status: int) -> None:
        """Flower, which refuses nodes too, does not say so, and a second node with a key that is
        connected only to that one."""
        key = pem_digest(scope[KEY]) if KEY in scope else ""
        if status in REFUSALS:
            what = _who_and_what(scope)
            self._seldom.say(f"refused {what} ({status}){f', key {key[:16]}' if key else ''}")
            whose: dict[str, JsonValue] = {"key": key} if key else {}
            if key and self.node_of(scope[KEY]):
                whose["client"] = self.client_of(scope[KEY])
            self.audit.refuse("unknown", asked=what, status=status, **whose)
        elif status < 400:
            self.audit.refuse("activated", key=key, address=_sender(scope))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise Refused(403)
        if not PATH.fullmatch(scope["path"]) or not HOST.fullmatch(_headers(scope).get("host", "")):
            raise Refused(400)
        path, size = scope["path"], _length(scope)
        large = path in PIECES
        if size > (LARGEST_PIECE if large else LARGEST_MESSAGE):
            raise Refused(413)
        peer, node, digest = await asyncio.to_thread(self._authenticated, scope)
        if path == CHECK and not size:
            client = self.client_of(bytes.fromhex(peer))
            said = _headers(scope).get(CLIENT, client)
            if client and said != client and NUMBER.fullmatch(said):
                why = f"client {client}'s key came from a node that says it is client {said}"
                self.audit.refuse("left out", reason=f"{why}, from {_sender(scope)}")
            head = [(CLIENT.encode(), client.encode()), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": b""})
            return
        patience = BODY_SECONDS + size / SLOWEST
        async with self.memory.taken(peer, size * (PIECE_COSTS if large else COSTS)):
            try:
                async with asyncio.timeout(patience):
                    body = await _body(receive)
            except TimeoutError as error:
                raise Refused(408, read=True) from error
            if digest is not None and hashlib.sha256(body).hexdigest() != digest:
                raise Refused(401, read=True)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._pass_on(scope, body, receive, send, node)
            except TimeoutError as error:
                raise Gone from error

    async def _pass_on(
        self, scope: Scope, body: bytes, receive: Receive, send: Send, node: int
    ) -> None:
        """To the SuperLink; a question for messages stays until there is one."""
        path = scope["path"]
        if path.startswith(NODES) and path not in (ACTIVATE, HEARTBEAT, PULL):
            self.waiting.heard(node)
        if self.announced is None or path not in (PULL, CONFIRM, DRIVERS_MESSAGE):
            await self.app(scope, _again(body, receive), send)
            if path == DRIVERS_PIECE:
                self.waiting.piece_came()
            return

        async def ask() -> Reply:
            return await _asked(self.app, scope, body)

        if path == DRIVERS_MESSAGE:
            reply = await ask()
            if reply.status == 200:
                self.waiting.coming(self.announced(body, reply.body))
        elif len(body) > LARGEST_QUESTION:
            reply = await ask()
        elif path == CONFIRM:
            reply = await ask()
            await asyncio.sleep(self.waiting.confirmed)
        else:
            found = await self.waiting.ask(node, ask, lambda: _gone(receive))
            if found is None:
                raise Gone
            reply = found
        head = {"type": "http.response.start", "status": reply.status, "headers": reply.headers}
        await send(head)
        await send({"type": "http.response.body", "body": reply.body})

    def _authenticated(self, scope: Scope) -> tuple[str, int, str | None]:
        """Who asks, which node that is, and the digest that the body must have; `Refused` if nobody
        who may."""
        path, headers = scope["path"], _headers(scope)
        if not path.startswith(NODES):
            if _sender(scope) not in self.insiders:
                raise Refused(403)
            digest = driver_auth.digest(self.secret, path, headers.get(driver_auth.HEADER, ""))
            if digest is None:
                raise Refused(401)
            return "driver", 0, digest
        key = self.signer(headers)
        if key is None:
            raise Refused(401)
        scope[KEY] = key
        node = self.node_of(key)
        if not node and not (self.opened and path == REGISTER):
            raise Refused(412 if path == ACTIVATE else 401)  # as Flower does: nodes know these
        return key.hex(), node, None


class Memory:
    """What requests under way may take; who asks for more waits until others are done."""

    def __init__(self, total: int = MEMORY, each: int = MEMORY_EACH) -> None:
        self.total, self.each = total, each
        self.used: Counter[str] = Counter()
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def taken(self, peer: str, size: int) -> AsyncIterator[None]:
        def fits() -> bool:
            return self.used[peer] + size <= self.each and self.used.total() + size <= self.total

        async with self._freed:
            await self._freed.wait_for(fits)
            self.used[peer] += size
        try:
            yield
        finally:
            async with self._freed:
                self.used[peer] -= size
                self.used += Counter()  # forgets those at 0
                self._freed.notify_all()


def _headers(scope: Scope) -> dict[str, str]:
    """Those that are there once: of two, somebody would read one and somebody the other."""
    names = Counter(name for name, _ in scope["headers"])
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if names[name] == 1
    }


def _length(scope: Scope) -> int:
    values = [v.decode("latin-1") for n, v in scope["headers"] if n == b"content-length"]
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        raise Refused(411)
    if not values:
        return 0
    if (size := length(values)) is None:
        raise Refused(400)
    return size


def _sender(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def _who_and_what(scope: Scope) -> str:
    return f"{one_line(scope['path'][:100])} from {_sender(scope)}"


async def _body(receive: Receive) -> bytes:
    """The body; it is as long as the head said, or uvicorn refuses it."""
    whole = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise Gone
        whole += event.get("body", b"")
        if not event.get("more_body"):
            return bytes(whole)


async def _gone(receive: Receive) -> None:
    """Until who asked has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _asked(app: Callable[..., Awaitable[None]], scope: Scope, body: bytes) -> Reply:
    """What the application answers, as a whole. It may be asked again: it gets a copy."""
    status, headers, parts = 500, [], []

    async def keep(event: Scope) -> None:
        nonlocal status, headers
        if event["type"] == "http.response.start":
            status, headers = event["status"], list(event.get("headers", []))
        else:
            parts.append(event.get("body", b""))

    async def nothing_more() -> Scope:
        await asyncio.Event().wait()
        raise AssertionError

    await app(dict(scope), _again(body, nothing_more), keep)
    return Reply(status, headers, b"".join(parts))


async def _drained(scope: Scope, receive: Receive) -> None:
    """Who is still sending does not read an answer: wait for a small rest, and forget it."""
    if scope["type"] != "http":
        return
    with contextlib.suppress(Refused, Gone, TimeoutError):
        if _length(scope) <= LARGEST_MESSAGE:
            async with asyncio.timeout(TOLD_SECONDS):
                while True:
                    event = await receive()
                    if event["type"] != "http.request" or not event.get("more_body"):
                        return


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, for the application; after it, whatever else comes."""
    given = False

    async def first() -> Scope:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return first
