"""A job that comes to a node which is changing its key is sent once more, where that is safe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.config.flower import Settings
from fedrl.core.types import Failure, Job, Result, Spec
from fedrl.engines.flower import keys, registered
from fedrl.engines.flower.adapter.records import NODE_GONE
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.engine import FlowerEngine, Recipe
from fedrl.engines.flower.node_calls import NodeCalls

OTHER = "no answer within the deadline of 5 s"


class Echo:
    def declare(self, broadcast: Any) -> dict[str, Spec]:
        return {"x": Spec((1,), "float32")}


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Client 0 changes its key, client 1 does not."""
    (tmp_path / "nodes").mkdir()
    for number in range(2):
        keys.make_node(tmp_path / f"{number}.key")
        registered.at(tmp_path).add(tmp_path / f"{number}.key.pub", number)
    registered.at(tmp_path).add(registered.renew(tmp_path / "0.key"))
    return tmp_path / "nodes"


def outcomes(nodes: Path, reason: str, times: int, once: bool = False) -> tuple[list[Any], int]:
    """What comes of a round in which both fail so many times with this reason, and how often they
    were asked."""
    connection = Connection("x:1", "ca.pem", "", str(nodes))
    engine = FlowerEngine(
        Echo(),
        Recipe("r", "", 1),
        connection,
        Settings(),
        opens=None,
        once=once,  # type: ignore[arg-type]
    )
    asked: list[int] = []

    def ask(questions: Mapping[int, Any], *_: object) -> Iterator[tuple[int, Any]]:
        for key, question in questions.items():
            asked.append(question.client)
            late = asked.count(question.client) > times
            yield key, Result(question.client, {}) if late else Failure(question.client, reason)

    real: NodeCalls = engine.calls
    engine.calls = SimpleNamespace(ask=ask, has_moved=real.has_moved, tries=0)  # type: ignore[assignment]
    sent = {"x": np.zeros(1, np.float32)}
    found = list(engine._each([Job(c, sent, None, 0, 1) for c in (0, 1)], 5.0))
    return [isinstance(outcome, Result) for outcome in found], len(asked)


def test_only_a_client_that_changes_its_key_is_asked_again(nodes: Path):
    assert outcomes(nodes, NODE_GONE, 1) == ([True, False], 3)


def test_not_more_than_once(nodes: Path):
    """Whoever answers so for ever does not hold the round up for ever."""
    assert outcomes(nodes, NODE_GONE, 9) == ([False, False], 3)


def test_not_for_another_reason(nodes: Path):
    assert outcomes(nodes, OTHER, 1) == ([False, False], 2)


def test_not_where_a_second_update_would_show_more(nodes: Path):
    assert outcomes(nodes, NODE_GONE, 1, once=True) == ([False, False], 2)
