"""A body's length that is read in two ways: short when it is checked, long when it is read."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from fedrl.core import loopback
from fedrl.core.loopback import LoopbackServer
from fedrl.feedback.http_server import LONGEST_BODY, KeyedServer, Request

JSON = "application/json"
LONG = 2 * LONGEST_BODY
ZEROS = "0" * 20


@pytest.fixture
def keyed() -> Iterator[LoopbackServer]:
    """A page that tells how much it has read."""

    def answer(request: Request) -> None:
        request.send_json({"read": len(request.body())})

    with KeyedServer(0, answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def shop() -> Iterator[LoopbackServer]:
    from fedrl.envs.webshop.shop import Settings, WebShop
    from fedrl.play.shop_server import open_shop

    with open_shop(WebShop(Settings(products=50, validation=5, public=5))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def post(server: LoopbackServer, lengths: list[str], body: bytes, kind: str) -> int:
    wire = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    wire.putrequest("POST", "/search")
    for told in lengths:
        wire.putheader("Content-Length", told)
    wire.putheader("Content-Type", kind)
    wire.endheaders()
    wire.send(body)
    return wire.getresponse().status


@pytest.mark.parametrize("told", [ZEROS + str(LONG), "0" + "9" * 5000], ids=["zeros", "digits"])
def test_the_feedback_page_reads_no_more_than_its_limit(keyed: LoopbackServer, told: str):
    assert post(keyed, ["6"], b'"four"', JSON) == HTTPStatus.OK
    assert post(keyed, [told], b"", JSON) == HTTPStatus.LENGTH_REQUIRED
    assert post(keyed, [str(LONG)], b"", JSON) == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


@pytest.mark.parametrize("told", [ZEROS + str(LONG), "0" + "9" * 5000], ids=["zeros", "digits"])
def test_the_shop_reads_no_more_than_its_limit(shop: LoopbackServer, told: str):
    form = "application/x-www-form-urlencoded"
    assert post(shop, [told], b"", form) == HTTPStatus.LENGTH_REQUIRED
    assert post(shop, ["5", "500000"], b"a=bcd", form) == HTTPStatus.LENGTH_REQUIRED


@pytest.mark.parametrize(
    "told", [[], [""], ["-1"], ["+1"], [" 1"], ["1 "], ["1_0"], ["٣"], ["01"], ["0x1"], ["1", "1"],
             ["1" * 19], ["1\n"]]
)  # fmt: skip
def test_what_is_no_length(told: list[str]):
    assert loopback.length(told) is None


@pytest.mark.parametrize("size", [0, 1, 10, 65536, 10**17])
def test_what_is_one(size: int):
    assert loopback.length([str(size)]) == size
