"""The classics over Flower's messages: what each sends, keeps and broadcasts gives the numbers that
it gives client by client in one process. (On real machines: test_flower_machines.py.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")
pytest.importorskip("numba", reason="needs the extra classic")

from support.flower_nodes import Net
from support.flower_runs import CLASSICS
from support.rounds import play, same

import fedrl
from fedrl.config.build import build_algorithm
from fedrl.core.types import Algorithm, Failure, Job, Result
from fedrl.engines.in_process import attempt

pytestmark = pytest.mark.slow

CLIENTS = 3


class OneByOne:
    """Clients as nodes have them: each alone, and not all in one compiled call."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
        return (attempt(self.algorithm, job) for job in jobs)


@pytest.mark.parametrize("name", CLASSICS)
def test_the_same_numbers_over_messages(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.01)
    recipe = CLASSICS[name] | {"federation": {"clients": CLIENTS}}
    algorithm = build_algorithm(fedrl.configure(recipe))
    over = play(algorithm, 2, Net(algorithm, tmp_path, CLIENTS).engine(), clients=CLIENTS)
    here = play(algorithm, 2, OneByOne(algorithm), clients=CLIENTS)
    assert over.rounds[-1].metrics["cohort/failed"] == 0
    same(over.last.states[0], here.last.states[0])
    assert [done.metrics for done in over.rounds] == [done.metrics for done in here.rounds]
