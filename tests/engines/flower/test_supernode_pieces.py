"""A SuperNode's program: a message's pieces in order, each when it is taken, by threads that end;
when the SuperLink has answered last; and its end.

A thread that is left to the garbage collector is waited for wherever that runs. Within
`Thread.start` both waited for the same lock, and a SuperNode answered nobody any more.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError

from fedrl.engines.flower.adapter import HEARD, HOME_VARIABLE, transfer
from fedrl.engines.flower.adapter.supernode import HEARTBEAT, PULL, HeardClient, Pulled

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


ENDED = """
import importlib, threading
program = importlib.import_module("flwr.supernode.cli.flower_supernode")
stays = threading.Thread(target=threading.Event().wait)
def ended():
    stays.start()
    {}
program.flower_supernode = ended
from fedrl.engines.flower.adapter.supernode import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("last", ["pass", "raise KeyboardInterrupt", "raise RuntimeError"])
def test_its_process_ends_with_its_loop(last: str):
    """Flower's keeps the executor's interface, so that its node took it for one that works. A
    second signal comes where the heartbeat is refused, too, while the first is dealt with."""
    words = [sys.executable, "-c", ENDED.format(last)]
    assert subprocess.run(words, timeout=60, stderr=subprocess.DEVNULL).returncode == 1


def test_an_answer_is_noted_until_a_question_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    heard = tmp_path / HEARD
    asked: list[str] = []

    def ask(_: object, *, path: str, fails: bool = False) -> None:
        asked.append(path)
        if fails:
            raise OSError

    monkeypatch.setattr(HeardClient.__mro__[1], "_unary_unary", ask)
    client = object.__new__(HeardClient)
    client._unary_unary(path=HEARTBEAT)
    assert not heard.exists()
    client._unary_unary(path="/v1/fleet/activate-node")
    assert heard.exists()
    for path, kept in (("/v1/fleet/push-object", True), (PULL, False)):
        with pytest.raises(OSError):
            client._unary_unary(path=path, fails=True)
        assert heard.exists() == kept
    client._unary_unary(path=PULL)
    assert heard.exists()
    assert len(asked) == 5
