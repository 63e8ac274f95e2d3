"""Random search over requests to a SuperLink: of who has shown nothing, no body is ever read.

Genuine requests of a member and of a driver are changed in one to three places, sent from other
addresses, at other times and with other bodies. Who may be heard is said here a second time: a
member by a registered key that signed a time close to now, a driver on an allowed address by the
secret over its path and body. Everything else gets a status, and its body stays unread, but for the
rest of a small one that is thrown away.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import random
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from fedrl.engines.flower import driver_auth, superlink_guard
from fedrl.engines.flower.adapter.superlink import signing_key
from fedrl.engines.flower.superlink_guard import LARGEST_MESSAGE, LARGEST_PIECE, PIECES, Guard

SEARCHES, EACH = 8, 60
SECRET, INSIDE = b"the driver's secret", "127.0.0.1"
MEMBER, STRANGER = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
KNOWN = public_key_to_bytes(MEMBER.public_key())
PATHS = ("/v1/fleet/pull-messages", "/v1/fleet/push-object", "/v1/fleet/register-node",
         "/v1/control/start-run", "/v1/runtime/push-object", "/", "/v1/FLEET/pull-messages",
         "/v1/fleet", "//v1/fleet/x", "/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/x",
         "/v1/fleet/x?y=1", "/v1/fleet/x\r\nhost: y")  # fmt: skip


class Case:
    """One request, and whether its sender may be heard."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.path = draw.choice(PATHS)
        self.address = draw.choice((INSIDE, INSIDE, "10.0.0.9", ""))
        self.body = draw.randbytes(draw.choice((0, 2, 100)))
        self.sent = self.body
        self.offset = draw.choice((0, 0, 0, 200, -200, 400, -400, 10**6))
        self.key = draw.choice((MEMBER, MEMBER, STRANGER))
        self.secret = draw.choice((SECRET, SECRET, b"another"))
        self.signed_path = draw.choice((self.path, self.path, "/v1/control/other"))
        self.headers: list[tuple[bytes, bytes]] = [
            (b"host", b"hub"), (b"content-length", str(len(self.body)).encode())
        ]  # fmt: skip
        self.node = draw.random() < 0.6
        self.driver = draw.random() < 0.6
        self.spoiled = False
        if self.node:
            self.headers += node_headers(self.key, self.offset)
        if self.driver:
            self.headers.append((driver_auth.HEADER.encode(), self.signature()))
        for _ in range(draw.choice((0, 0, 1, 2, 3))):
            self.spoil()

    def signature(self) -> bytes:
        true, driver_auth.time.time = driver_auth.time.time, lambda: true() + self.offset  # type: ignore[assignment]
        try:
            return driver_auth.sign(self.secret, self.signed_path, self.body).encode()
        finally:
            driver_auth.time.time = true  # type: ignore[assignment]

    def spoil(self) -> None:
        draw, kind = (
            self.draw,
            self.draw.choice(("bit", "twice", "gone", "length", "chunked", "body")),
        )
        self.spoiled = True
        place = draw.randrange(len(self.headers))
        name, value = self.headers[place]
        if kind == "bit" and value:
            changed = bytearray(value)
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(7)
            self.headers[place] = (name, bytes(changed))
        elif kind == "twice":
            self.headers.insert(
                draw.randrange(len(self.headers)), (name, draw.choice((value, b"x")))
            )
        elif kind == "gone" and len(self.headers) > 1:
            del self.headers[place]
        elif kind == "length":
            huge = str(LARGEST_PIECE + 1).encode()
            told = draw.choice((b"-1", b"+5", b"0x10", b"1e3", b"9" * 30, huge, "٣".encode()))
            self.headers = [one for one in self.headers if one[0] != b"content-length"]
            self.headers.append((b"content-length", told))
        elif kind == "chunked":
            self.headers.append((b"transfer-encoding", b"chunked"))
        else:
            self.sent = draw.randbytes(len(self.body) + 1)

    @property
    def may_be_heard(self) -> bool:
        """Of requests that nobody spoiled; of others nothing is said but that they need not be."""
        close = -305 < self.offset < 5  # a member's clock may be behind, and hardly ahead
        plain = superlink_guard.PATH.fullmatch(self.path) is not None
        if self.path.startswith("/v1/fleet/"):
            return plain and self.node and close and self.key is MEMBER
        right = (
            self.driver
            and abs(self.offset) < 300
            and self.secret is SECRET
            and self.signed_path == self.path
        )
        return plain and right and self.address == INSIDE


def node_headers(key: Any, offset: float) -> list[tuple[bytes, bytes]]:
    told = (now() + datetime.timedelta(seconds=offset)).isoformat()
    made = {
        "flwr-public-key": public_key_to_bytes(key.public_key()),
        "flwr-signature": sign_message(key, told.encode()),
    }
    coded = [(name.encode(), base64.b64encode(value)) for name, value in made.items()]
    return [*coded, (b"flwr-timestamp", told.encode())]


def ask(case: Case) -> tuple[int, bool, int]:
    """The status, whether the SuperLink was asked, and how many bytes of the body were read."""
    reached, statuses, read = [], [], [0]

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        reached.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        read[0] += len(case.sent)
        return {"type": "http.request", "body": case.sent, "more_body": False}

    async def send(event: Any) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    client = (case.address, 1) if case.address else None
    scope = {"type": "http", "path": case.path, "headers": case.headers, "client": client}
    guard = Guard(behind, {INSIDE}, SECRET, signing_key, lambda key: key == KNOWN)
    asyncio.run(guard(scope, receive, send))
    assert len(statuses) == 1
    assert reached in ([], [case.sent])
    return statuses[0], bool(reached), read[0]


def allowed(case: Case) -> bool:
    """What must hold of whatever was heard, spoiled or not, read off the request as it was sent."""
    once = {name: value for name, value in case.headers
            if sum(name == other for other, _ in case.headers) == 1}  # fmt: skip
    if case.path.startswith("/v1/fleet/"):
        signed = {name.decode(): value.decode("latin-1") for name, value in once.items()}
        return signing_key(signed) == KNOWN
    told = once.get(driver_auth.HEADER.encode(), b"").decode("latin-1").split(" ")
    digest = driver_auth.hashlib.sha256(case.sent).hexdigest()
    return case.address == INSIDE and len(told) == 3 and told[1] == digest


@pytest.mark.parametrize("seed", range(SEARCHES))
def test_who_has_shown_nothing_is_not_heard(seed: int):
    heard = refused = 0
    for number in range(EACH):
        case = Case(random.Random(1000 * seed + number))
        status, reached, read = ask(case)
        where = (seed, number, case.path, status)
        if not case.spoiled:
            assert reached == case.may_be_heard, where
        if reached:
            heard += 1
            assert status == 200, where
            assert allowed(case), where
        else:
            refused += 1
            assert status in superlink_guard.REFUSALS, where
            assert read <= max(len(case.sent), LARGEST_MESSAGE), where
    assert refused > EACH // 4  # the search sees both
    assert heard > 0


@pytest.mark.parametrize("path", ["/v1/fleet/pull-messages", *PIECES])
def test_what_is_too_large_is_not_even_thrown_away(path: str):
    """The rest of a small request is read so that its sender gets an answer; of this nothing is."""
    case = Case(random.Random(0))
    case.path, case.node = path, False
    case.headers = [(b"host", b"hub"), (b"content-length", str(LARGEST_PIECE + 1).encode())]
    assert ask(case) == (413, False, 0)


@pytest.mark.parametrize(
    ("offset", "heard"), [(-310, False), (-300, True), (0, True), (1, True), (10, False)]
)
def test_a_members_clock_may_be_five_minutes_behind_and_hardly_ahead(offset: int, heard: bool):
    """As Flower has it: an old request that was overheard is good for nothing."""
    member = {name.decode(): value.decode() for name, value in node_headers(MEMBER, offset)}
    assert (signing_key(member) is not None) == heard


@pytest.mark.parametrize(
    ("offset", "heard"), [(-310, False), (-290, True), (290, True), (310, False)]
)
def test_a_drivers_clock_may_be_off_by_five_minutes(offset: int, heard: bool):
    case = Case(random.Random(0))
    case.offset, case.secret, case.signed_path = offset, SECRET, "/x"
    told = case.signature().decode()
    assert (driver_auth.digest(SECRET, "/x", told) is not None) == heard
