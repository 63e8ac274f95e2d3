"""Connections, bodies and memory of a SuperLink's guard: many, slow, and all at once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from fedrl.engines.flower import driver_auth, owner_log, superlink_guard, superlink_listener
from fedrl.engines.flower.adapter.superlink import signing_key
from fedrl.engines.flower.superlink_guard import Guard, Memory

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core

KEY = b"a registered key"
HEAD = b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\n"


async def behind(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        size = len((await receive())["body"])
        head = [(b"content-length", b"0"), (b"size", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def serving(most: int = 8, each: int = 8, key: bytes | None = KEY) -> Iterator[int]:
    """The port of a guard without a SuperLink behind it."""
    app = Guard(behind, {"127.0.0.1"}, b"secret", lambda _: key, lambda k: k == KEY)
    sockets = superlink_listener.listen("127.0.0.1", 0, superlink_listener.Doorkeeper(most, each))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=superlink_listener.Impatient,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_level="critical",
        )
    )
    thread = threading.Thread(target=server.run, args=([*sockets],))
    thread.start()
    try:
        yield sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def answer(wire: socket.socket) -> bytes:
    """All that comes until the connection is closed, or the head of an answer."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while b"\r\n\r\n" not in got and (more := wire.recv(4096)):
            got += more
    return got


def test_no_more_connections_than_the_limit_and_room_again_after_them():
    with serving(most=3) as port:
        inside = [connect(port) for _ in range(3)]
        for wire in inside[:1]:
            wire.sendall(HEAD + b"content-length: 2\r\n\r\nab")
            assert b"200 OK" in answer(wire)
        assert answer(connect(port)) == b""
        for wire in inside:
            wire.close()
        for _ in range(50):  # until the server has noticed
            wire = connect(port)
            with contextlib.suppress(OSError):
                wire.sendall(HEAD + b"content-length: 2\r\n\r\nab")
            if b"size: 2" in answer(wire):
                return
        pytest.fail("the places were not free again")


def test_one_address_does_not_take_all_places():
    door = superlink_listener.Doorkeeper(most=5, each=3)
    assert [door.enter("a") for _ in range(4)] == [True, True, True, False]
    assert [door.enter(who) for who in "bcd"] == [True, True, False]
    for _ in range(3):
        door.leave("a")
    assert door.enter("d")
    assert set(door.inside) == {"b", "c", "d"}


@pytest.mark.parametrize(
    "said",
    [b"", b"POST /v1/fl", HEAD, b"POST / HTTP/1.1\r\nx: " + b"y" * 8000],
    ids=["nothing", "a word", "half a head", "a long head"],
)
def test_who_does_not_get_to_the_point_is_cut_off(said: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(superlink_listener, "HEAD_SECONDS", 0.3)
    with serving() as port:
        wire = connect(port)
        wire.sendall(said)
        assert answer(wire) == b""


def test_a_head_without_end_is_refused():
    with serving() as port:
        wire = connect(port)
        with contextlib.suppress(OSError):
            for _ in range(100):
                wire.sendall(b"POST / HTTP/1.1\r\nx: " + b"y" * 10_000)
        got = answer(wire)
        assert got == b"" or b"400" in got


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(superlink_guard, "BODY_SECONDS", 0.3)
    with serving() as port:
        wire = connect(port)
        wire.sendall(HEAD + b"content-length: 200\r\n\r\nslowly")
        assert b"408" in answer(wire)


def test_a_refusal_reaches_who_is_still_sending():
    with serving(key=None) as port:
        wire = connect(port)
        wire.sendall(HEAD + b"content-length: 200000\r\n\r\n" + bytes(100_000))
        wire.sendall(bytes(100_000))
        assert b"401" in answer(wire)


def test_an_address_that_keeps_coming_is_let_in_so_often_and_drivers_always(
    monkeypatch: pytest.MonkeyPatch,
):
    """Each would cost a TLS handshake; other addresses come in meanwhile."""
    now = [1000.0]
    monkeypatch.setattr(superlink_listener.time, "monotonic", lambda: now[0])
    door = superlink_listener.Doorkeeper(known={"10.0.0.9"})

    def come(peer: str, times: int) -> int:
        let_in = 0
        for _ in range(times):
            if door.enter(peer):
                door.leave(peer)
                let_in += 1
        return let_in

    def flood(seconds: int) -> int:
        found = 0
        for _ in range(1000 * seconds):
            now[0] += 0.001
            found += come("10.0.0.7", 1)
        return found

    first = flood(60)
    expected = superlink_listener.ARRIVALS + 60 * superlink_listener.ARRIVALS_A_SECOND
    assert first == pytest.approx(expected, abs=2)
    assert come("10.0.0.8", 100) == 100
    assert come("10.0.0.9", 5000) == 5000
    now[0] += 60
    assert come("10.0.0.7", 1000) == superlink_listener.ARRIVALS


def test_who_has_come_is_not_remembered_without_end():
    door = superlink_listener.Doorkeeper()
    for number in range(superlink_listener.REMEMBERED + 500):
        assert door.enter(f"10.0.{number // 250}.{number % 250}")
        door.leave(f"10.0.{number // 250}.{number % 250}")
    assert len(door._came) == superlink_listener.REMEMBERED
    assert not door.inside


def test_a_flood_of_refusals_fills_no_log(capsys: pytest.CaptureFixture[str]):
    """Their number is told with the first one of the next minute."""
    guard = Guard(behind, {"127.0.0.1"}, b"secret", lambda _: None, lambda _: 0)

    async def flood(times: int) -> None:
        for _ in range(times):
            scope = {"type": "http", "path": "/v1/fleet/pull-messages", "headers": [],
                     "client": ("10.0.0.7", 4000)}  # fmt: skip
            await guard(scope, nothing, ignored)

    asyncio.run(flood(500))
    assert len(capsys.readouterr().err.splitlines()) == owner_log.MOST
    guard._seldom._when.clear()  # a minute later
    asyncio.run(flood(1))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        f"refused /v1/fleet/pull-messages from 10.0.0.7 (401) (and {500 - owner_log.MOST} more "
        "before it)"
    )


async def nothing() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def ignored(_: Any) -> None:
    pass


def test_requests_that_are_none_fill_no_log_either():
    logger, lines = logging.Logger("like uvicorn's"), []
    handler = logging.Handler()
    handler.emit = lines.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    superlink_listener.limit_warnings(logger)
    for _ in range(500):
        logger.warning("Invalid HTTP request received.")
    logger.info("Started")
    assert len(lines) == owner_log.MOST + 1


def test_requests_wait_for_memory_and_take_no_more_than_there_is():
    most = []

    async def run() -> None:
        memory = Memory(total=100, each=60)

        async def request(peer: str, size: int) -> None:
            async with memory.taken(peer, size):
                most.append((memory.used.total(), memory.used[peer]))
                await asyncio.sleep(0.001)

        await asyncio.gather(*(request(f"p{i % 3}", 10 + i % 40) for i in range(200)))
        assert not memory.used

    asyncio.run(run())
    assert len(most) == 200
    assert max(total for total, _ in most) <= 100
    assert max(each for _, each in most) <= 60


def test_the_largest_request_of_each_kind_fits():
    """What could never be taken would wait for ever."""
    assert (
        superlink_guard.LARGEST_PIECE * superlink_guard.PIECE_COSTS
        <= superlink_guard.MEMORY_EACH
        <= superlink_guard.MEMORY
    )
    assert superlink_guard.LARGEST_MESSAGE * superlink_guard.COSTS <= superlink_guard.MEMORY_EACH


# Who signed -------------------------------------------------------------------------------------


def headers(key: Any, told: str | None = None) -> dict[str, str]:
    told = told or now().isoformat()
    try:
        signature = sign_message(key, told.encode())
    except TypeError:
        signature = b"of another kind"
    return {
        "flwr-public-key": base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        "flwr-timestamp": told,
        "flwr-signature": base64.b64encode(signature).decode(),
    }


def test_a_node_is_known_by_its_signature():
    key = ec.generate_private_key(ec.SECP384R1())
    good = headers(key)
    assert signing_key(good) == public_key_to_bytes(key.public_key())
    other = ec.generate_private_key(ec.SECP384R1())
    assert signing_key(good | {"flwr-signature": headers(other)["flwr-signature"]}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"flwr-timestamp": "2020-01-01T00:00:00+00:00"},
        {"flwr-timestamp": "2020-01-01T00:00:00"},
        {"flwr-timestamp": "2020-01-01é00:00:00+00:00"},
        {"flwr-timestamp": "0001-01-01T00:00:00+23:59"},
        {"flwr-timestamp": "never"},
        {"flwr-public-key": "é"},
        {"flwr-public-key": ""},
        {"flwr-public-key": base64.b64encode(b"-----BEGIN PUBLIC KEY-----").decode()},
        {"flwr-signature": "A"},
        {"flwr-signature": ""},
    ],
)
def test_headers_that_show_nothing(wrong: dict[str, str]):
    key = ec.generate_private_key(ec.SECP384R1())
    assert signing_key(headers(key) | wrong) is None
    for name in wrong:
        assert signing_key({k: v for k, v in headers(key).items() if k != name}) is None


def test_a_key_of_another_kind_shows_nothing():
    assert signing_key(headers(rsa.generate_private_key(65537, 2048))) is None


@pytest.mark.parametrize("change", ["path", "digest", "time", "secret", "form"])
def test_a_drivers_signature_holds_for_what_it_signs(change: str, monkeypatch: pytest.MonkeyPatch):
    value = driver_auth.sign(b"s", "/a", b"body")
    assert driver_auth.digest(b"s", "/a", value) is not None
    if change == "time":
        later = driver_auth.time.time() + driver_auth.VALID_SECONDS + 2
        monkeypatch.setattr(driver_auth.time, "time", lambda: later)
    path = "/b" if change == "path" else "/a"
    told, digest, signature = value.split(" ")
    if change == "digest":
        digest = "0" * 64
    secret = b"t" if change == "secret" else b"s"
    given = f"{told} {digest} {signature}" + ("\n" if change == "form" else "")
    assert driver_auth.digest(secret, path, given) is None
