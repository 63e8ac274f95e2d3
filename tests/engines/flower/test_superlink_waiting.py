"""Questions for messages wait at the SuperLink; no message is swallowed by a dead connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.engines.flower import driver_auth
from fedrl.engines.flower.superlink_guard import (
    CONFIRM,
    DRIVERS_MESSAGE,
    DRIVERS_PIECE,
    PULL,
    Guard,
)
from fedrl.engines.flower.superlink_waiting import Announced, Reply, WaitingNodes

EMPTY = Reply(200, [], b"")
LONG = 60.0
"""Seconds that no test waits for."""


class Link:
    """A SuperLink with one message per node at most, given once as Flower does."""

    def __init__(self) -> None:
        self.messages: dict[int, bytes] = {}
        self.asked = 0

    def ask(self, node: int = 1) -> Callable[[], Awaitable[Reply]]:
        async def asked() -> Reply:
            self.asked += 1
            await asyncio.sleep(0)
            return Reply(200, [], self.messages.pop(node, b""))

        return asked


async def never() -> None:
    await asyncio.Event().wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_question_is_answered_when_all_pieces_of_a_message_are_here():
    async def story() -> None:
        link, waiting = Link(), WaitingNodes(LONG, LONG)
        question = asyncio.create_task(waiting.ask(1, link.ask(), never))
        await settle()
        link.messages[1] = b"a message"
        waiting.coming(Announced({1}, 2))
        waiting.piece_came()
        await settle()
        assert not question.done()
        waiting.piece_came()
        assert await question == Reply(200, [], b"a message")
        assert link.asked == 2

    asyncio.run(story())


def test_one_without_pieces_comes_at_once_and_a_large_one_before_its_last_piece():
    async def story() -> None:
        link, waiting = Link(), WaitingNodes(LONG, 0.01)
        for missing in (0, 1000):
            question = asyncio.create_task(waiting.ask(1, link.ask(), never))
            await settle()
            link.messages[1] = b"m"
            waiting.coming(Announced({1}, missing))
            assert await question == Reply(200, [], b"m")
            waiting.heard(1)

    asyncio.run(story())


def test_nobody_is_woken_by_the_message_of_another():
    """A hundred nodes that all looked for each of a hundred messages would be a load."""

    async def story() -> None:
        link, waiting = Link(), WaitingNodes(LONG, LONG)
        others = [asyncio.create_task(waiting.ask(n, link.ask(n), never)) for n in range(2, 9)]
        question = asyncio.create_task(waiting.ask(1, link.ask(), never))
        await settle()
        before, link.messages[1] = link.asked, b"m"
        waiting.coming(Announced({1}, 0))
        await question
        await settle()
        assert link.asked == before + 1
        assert not any(other.done() for other in others)
        for other in others:
            other.cancel()

    asyncio.run(story())


def test_a_message_that_comes_while_the_superlink_is_being_asked_is_not_missed():
    async def story() -> None:
        link, waiting = Link(), WaitingNodes(LONG, LONG)

        async def slow() -> Reply:
            reply = await link.ask()()
            if link.asked == 1:  # it has looked, and the message comes before it says so
                link.messages[1] = b"m"
                waiting.coming(Announced({1}, 0))
            return reply

        assert (await waiting.ask(1, slow, never)) == Reply(200, [], b"m")

    asyncio.run(story())


def test_without_a_message_the_question_ends_with_none():
    async def story() -> None:
        link, waiting = Link(), WaitingNodes(0.01, LONG)
        assert await waiting.ask(1, link.ask(), never) == EMPTY
        assert link.asked == 2

    asyncio.run(story())


def test_all_questions_end_with_the_superlink():
    async def story() -> None:
        link, waiting = Link(), WaitingNodes(LONG, LONG)
        questions = [asyncio.create_task(waiting.ask(n, link.ask(n), never)) for n in range(3)]
        await settle()
        waiting.end()
        assert await asyncio.gather(*questions) == [EMPTY] * 3
        assert await waiting.ask(4, link.ask(4), never) == EMPTY  # one that was on its way

    asyncio.run(story())


def test_who_is_gone_takes_no_message():
    async def story() -> None:
        link, waiting, closed = Link(), WaitingNodes(LONG, LONG), asyncio.Event()
        question = asyncio.create_task(waiting.ask(1, link.ask(), closed.wait))
        await settle()
        closed.set()
        assert await question is None
        link.messages[1] = b"m"
        waiting.coming(Announced({1}, 0))
        assert await waiting.ask(1, link.ask(), never) == Reply(200, [], b"m")

    asyncio.run(story())


def test_the_newest_question_of_a_node_gets_the_message():
    """A SuperNode that was restarted: the connection of the old one may look alive for minutes."""

    async def story() -> None:
        link, waiting = Link(), WaitingNodes(LONG, LONG)
        old = asyncio.create_task(waiting.ask(1, link.ask(), never))
        await settle()
        new = asyncio.create_task(waiting.ask(1, link.ask(), never))
        await settle()
        assert await old == EMPTY
        link.messages[1] = b"m"
        waiting.coming(Announced({1}, 0))
        assert await new == Reply(200, [], b"m")

    asyncio.run(story())


def test_what_a_node_never_heard_of_is_given_again_and_what_it_did_is_not():
    async def story() -> None:
        link, waiting = Link(), WaitingNodes(0.01, LONG)
        link.messages[1] = b"m"
        for _ in range(4):  # its answer was lost with the connection: it asks again
            assert await waiting.ask(1, link.ask(), never) == Reply(200, [], b"m")
        assert link.asked == 1
        assert await waiting.ask(1, link.ask(), never) == EMPTY  # not for ever
        link.messages[1] = b"n"
        assert await waiting.ask(1, link.ask(), never) == Reply(200, [], b"n")
        waiting.heard(1)
        assert await waiting.ask(1, link.ask(), never) == EMPTY

    asyncio.run(story())


def test_a_refusal_is_not_waited_with():
    async def story() -> None:
        async def refused() -> Reply:
            return Reply(401, [], b"")

        assert (await WaitingNodes(LONG, LONG).ask(1, refused, never)) == Reply(401, [], b"")

    asyncio.run(story())


# Through the guard -------------------------------------------------------------------------------


class Behind:
    """An application that carries messages from a driver to nodes."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        answer = b""
        if scope["path"] == DRIVERS_MESSAGE:
            self.messages.append(body)
        elif scope["path"] == PULL and self.messages:
            answer = self.messages.pop()
        length = str(len(answer)).encode()
        head = [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})


async def request(guard: Guard, path: str, body: bytes = b"") -> bytes:
    sent: list[Any] = []
    given: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if given:
            return given.pop()
        return await asyncio.Event().wait()

    async def send(event: Any) -> None:
        sent.append(event)

    signed = driver_auth.sign(guard.secret, path, body)
    headers = [(driver_auth.HEADER.encode(), signed.encode())]
    scope = {"type": "http", "path": path, "client": ("127.0.0.1", 4000), "headers": headers}
    await guard(scope, receive, send)
    assert sent[0]["status"] == 200
    return b"".join(event.get("body", b"") for event in sent[1:])


def test_a_message_goes_from_the_driver_to_a_node_that_waits():
    async def story() -> None:
        guard = Guard(Behind(), {"127.0.0.1"}, b"s", lambda _: b"key", lambda _: 7,
                      announced=lambda body, _: Announced({7}, int(body)))  # fmt: skip
        guard.waiting.held = guard.waiting.announced = LONG
        question = asyncio.create_task(request(guard, PULL, b"who"))
        await asyncio.sleep(0.05)  # threads look at its key
        await request(guard, DRIVERS_MESSAGE, b"1")
        await asyncio.sleep(0.05)
        assert not question.done()
        await request(guard, DRIVERS_PIECE, b"piece")
        assert await question == b"1"

    asyncio.run(story())


def test_a_question_with_a_large_body_is_not_kept():
    """What it takes of the memory for requests under way, it would take for long."""

    async def story() -> None:
        guard = Guard(Behind(), {"127.0.0.1"}, b"s", lambda _: b"key", lambda _: 7,
                      announced=lambda body, _: Announced({7}, 0))  # fmt: skip
        guard.waiting.held = LONG
        assert await request(guard, PULL, b"x" * 2000) == b""

    asyncio.run(story())


def test_a_confirmation_is_answered_when_the_client_may_have_answered():
    """A SuperNode looks for the client's answer then, and only half a second later again."""

    async def story() -> None:
        guard = Guard(Behind(), {"127.0.0.1"}, b"s", lambda _: b"key", lambda _: 7,
                      announced=lambda body, _: Announced({7}, 0))  # fmt: skip
        guard.waiting.confirmed, guard.waiting.held = 0.3, LONG
        begin = time.monotonic()
        await request(guard, CONFIRM, b"x" * 2000)
        assert time.monotonic() - begin < 0.3  # what is large takes of the memory for requests
        begin = time.monotonic()
        await request(guard, CONFIRM, b"which")
        assert time.monotonic() - begin >= 0.3

    asyncio.run(story())


def test_who_confirms_has_the_message():
    async def story() -> None:
        guard = Guard(Behind(), {"127.0.0.1"}, b"s", lambda _: b"key", lambda _: 7,
                      announced=lambda body, _: Announced({7}, 0))  # fmt: skip
        guard.waiting.confirmed, guard.waiting.held = 0.0, 0.01
        await request(guard, DRIVERS_MESSAGE, b"0")
        assert await request(guard, PULL, b"who") == b"0"
        assert await request(guard, PULL, b"who") == b"0"  # it may have been lost
        await request(guard, CONFIRM, b"which")
        assert await request(guard, PULL, b"who") == b""

    asyncio.run(story())
