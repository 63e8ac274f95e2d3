"""A message's pieces at a SuperNode: in order, each when it is taken, by threads that end.

A thread that is left to the garbage collector is waited for wherever that runs. Within
`Thread.start` both waited for the same lock, and a SuperNode answered nobody any more.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError

from fedrl.engines.flower.adapter import transfer
from fedrl.engines.flower.adapter.supernode import Pulled

NAMES = ["a", "b", "c", "d"]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("number", range(5))
def test_who_has_taken_all_pieces_leaves_no_thread(number: int):
    before = threading.active_count()
    pulled = Pulled(NAMES[:number], str.encode)
    assert [pulled.pop(name) for name in list(pulled.keys())] == [b"a", b"b", b"c", b"d"][:number]
    assert threading.active_count() == before


def test_a_message_that_is_given_up_leaves_none_and_needs_no_collector():
    before = threading.active_count()
    pulled = Pulled(NAMES, str.encode)
    pulled.pop("a")
    assert threading.active_count() > before
    gone = weakref.ref(pulled)
    del pulled
    assert gone() is None
    assert threading.active_count() == before


def test_a_piece_that_fails_ends_them():
    before = threading.active_count()

    def fail(name: str) -> bytes:
        raise ValueError(name)

    pulled = Pulled(NAMES, fail)
    with pytest.raises(ValueError, match="a"):
        pulled.pop("a")
    assert threading.active_count() == before


def test_a_piece_that_is_not_there_yet_is_asked_for_again():
    asked: list[str] = []

    def come(name: str) -> bytes:
        asked.append(name)
        if name == "b" and asked.count("b") < 3:
            raise ObjectUnavailableError(name)
        return name.encode()

    pulled = Pulled(NAMES, come)
    assert [pulled.pop(name) for name in NAMES] == [b"a", b"b", b"c", b"d"]
    assert asked.count("b") == 3


def test_few_are_under_way_at_a_time():
    under_way: list[int] = []
    given = transfer.ahead(lambda n: under_way.append(n) or n, range(10))
    assert next(given) == 0
    assert len(under_way) <= transfer.ON_THE_WAY
    assert [0, *given] == list(range(10))
