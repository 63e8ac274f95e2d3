"""A node waits for the rest of a message no longer than it takes, and not for ever."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.config.flower import Settings
from fedrl.engines.flower import node_calls
from fedrl.engines.flower.adapter import node as adapter
from fedrl.engines.flower.adapter.node import Overtaken, _Arriving
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.node_calls import NodeCalls, Sent


class Runtime:
    """A SuperNode that has the piece at the asked-th time; `found` as long as it knows it."""

    def __init__(self, asked: float, found: bool = True) -> None:
        self.left, self.found, self.times = asked, found, 0

    def PullObject(self, _: Any) -> Any:  # the name is Flower's
        self.left -= 1
        self.times += 1
        return SimpleNamespace(object_found=self.found, object_available=self.left <= 0)


def test_a_piece_is_here_as_soon_as_the_supernode_has_it():
    begin = time.monotonic()
    pulled = _Arriving(Runtime(4), lambda: False).PullObject(None)  # type: ignore[arg-type]
    assert pulled.object_available
    assert time.monotonic() - begin < 0.8  # where Flower waits for a second after the first time


def test_a_piece_that_nobody_has_is_not_waited_for():
    runtime = Runtime(10**6, found=False)
    assert not _Arriving(runtime, lambda: False).PullObject(None).object_found  # type: ignore[arg-type]
    assert runtime.times == 1


def test_a_message_that_will_never_be_all_here_is_given_up(monkeypatch):
    monkeypatch.setattr(adapter, "OVERTAKEN_SECONDS", 0.05)
    with pytest.raises(Overtaken):
        _Arriving(Runtime(10**6), lambda: True).PullObject(None)  # type: ignore[arg-type]


def test_answers_are_looked_for_often_at_first_and_seldom_in_a_long_round(monkeypatch, tmp_path):
    now, slept = [1000.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(node_calls, "time", clock)
    link: Any = SimpleNamespace(pull=lambda *_: [], forget=lambda _: None, push=lambda _: ["m"])
    calls = NodeCalls(Connection("x", "", ""), Settings(), print, lambda *_: link)
    sent = {"m": Sent(0, 0, 1, "", 1e9, None)}
    calls.send({}, 0.0, 60.0, {})
    while now[0] < 1010.0:
        calls.collect(0.0, sent, 10)
    assert slept[0] == pytest.approx(0.05)
    assert slept[-1] == pytest.approx(0.2)
    assert len(slept) < 100
