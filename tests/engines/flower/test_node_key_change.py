"""When a node changes to another key: never while an answer or a secure sum is under way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.engines.flower import keys, messages, node_executor, supernode
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.node import SUM_SECONDS, NodeClient
from fedrl.engines.flower.node_audit import Told
from fedrl.privacy.secure_aggregation.identity import Identity


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Tasks:
    """A SuperNode's: one message at each of these moments."""

    def __init__(self, clock: Clock, moments: list[float]) -> None:
        self.clock, self.moments = clock, moments

    def acquire(self) -> str:
        if self.moments and self.clock.now >= self.moments[0]:
            self.moments.pop(0)
            return "token"
        return ""

    def close(self) -> None: ...


def ended_at(
    monkeypatch: pytest.MonkeyPatch,
    moments: list[float],
    work: float = 0.0,
    sent: int = 0,
    summing: tuple[float, float] = (0.0, 0.0),
) -> float:
    """When a node whose key was changed at once ends, for messages at these moments."""
    clock = Clock()
    started = clock.now
    client = SimpleNamespace(sent=0, in_sum=lambda: summing[0] <= clock.now - started < summing[1])

    def answer(*_: object) -> None:
        clock.sleep(work)
        client.sent = sent

    monkeypatch.setattr(node_executor, "time", clock)
    tasks = Tasks(clock, [started + moment for moment in moments])
    monkeypatch.setattr(node_executor, "Tasks", lambda *_: tasks)
    monkeypatch.setattr(node_executor, "Task", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(node_executor, "_answer", answer)
    node_executor.serve(client, "x:1", b"", lambda: True, lambda: True)  # type: ignore[arg-type]
    assert not tasks.moments
    return clock.now - started


def test_it_waits_for_a_moment_without_messages(monkeypatch: pytest.MonkeyPatch):
    assert ended_at(monkeypatch, []) == pytest.approx(3.0, abs=0.3)
    assert ended_at(monkeypatch, [1.0, 3.5, 6.0]) == pytest.approx(9.0, abs=0.3)
    assert ended_at(monkeypatch, [1.0], work=50.0) == pytest.approx(54.0, abs=0.3)


def test_it_waits_until_a_large_answer_is_surely_there(monkeypatch: pytest.MonkeyPatch):
    assert ended_at(monkeypatch, [1.0], sent=50 * 2**20) == pytest.approx(54.0, abs=0.3)


def test_it_waits_for_the_end_of_a_sum(monkeypatch: pytest.MonkeyPatch):
    assert ended_at(monkeypatch, [1.0], summing=(1.0, 40.0)) == pytest.approx(40.0, abs=0.3)


def test_a_sum_is_open_from_its_first_message_to_its_last(monkeypatch: Any, tmp_path: Path):
    clock = Clock()
    monkeypatch.setattr("fedrl.engines.flower.node.time", clock)
    told = messages.Answer("n", 0, "")
    client = NodeClient(0, tmp_path, None)  # type: ignore[arg-type]
    monkeypatch.setattr(client, "_work", lambda *_: Told(told, records.NOTHING, "x"))
    monkeypatch.setattr(client, "_written", lambda told, *_: told)

    def asked(message: Any) -> bool:
        client.answer(records.content(messages.to_json(message)))
        return client.in_sum()

    def step(name: str) -> messages.Step:
        return messages.Step("n", 0, "sum", name, "")

    assert not asked(step("share"))  # of no sum that it knows
    client._sum = object()  # type: ignore[assignment]
    assert [asked(step(name)) for name in ("share", "mask", "agree", "unmask")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert asked(step("share"))
    clock.sleep(SUM_SECONDS + 1)  # its driver is gone
    assert not client.in_sum()


def test_no_supernode_is_started_while_its_key_is_being_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    """It would read the new one, and be taken for one with the old one: started again in a run."""
    monkeypatch.setattr(supernode, "_start", lambda *_: pytest.fail("started"))
    node = supernode.SuperNode("x:1", None, tmp_path / "key")
    supernode._serve_once(node, SimpleNamespace(folder=tmp_path))  # type: ignore[arg-type]
    assert "key cannot be read" in capsys.readouterr().err


def test_who_signs_is_who_connects(tmp_path: Path):
    """The driver compares signatures in a sum with the key of the node at the SuperLink."""
    keys.make_node(tmp_path / "key")
    node = supernode.SuperNode("x:1", None, tmp_path / "key")
    first = supernode._own(node, Identity())
    for file in tmp_path.glob("key*"):
        file.unlink()
    keys.make_node(tmp_path / "key")
    second = supernode._own(node, first)
    assert first.key is not None
    assert second.key is not None
    assert first.key.public_key() != second.key.public_key()
    (tmp_path / "key").write_text("half")
    assert supernode._own(node, second) == second
