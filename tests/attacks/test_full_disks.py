"""A random search over disks that fill up: what is not written does not leave, nothing is lost.

A disk is full from some write on, drawn by the seed, and has room again later. A run then stops in
one line and goes on to the same bytes. A node with an ε of its own, a log of what ran and sums that
it has opened answers nothing that these do not hold; afterwards they are whole, and its ε is never
exceeded.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.small_runs import ROUNDS, make_runs

from fedrl.cli import call

pytestmark = pytest.mark.slow

SEARCHES = 10


class Disk:
    """Full from the write number `last` on; counts what is written to the end."""

    def __init__(self, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last, self.count, self.refused = last, 0, 0
        self.sync, self.patch = os.fsync, monkeypatch

    def fsync(self, descriptor: int) -> None:
        self.count += 1
        if self.count > self.last:
            self.refused += 1
            raise OSError(28, "No space left on device")
        self.sync(descriptor)

    @contextlib.contextmanager
    def full(self) -> Iterator[Disk]:
        with self.patch.context() as patch:
            patch.setattr(os, "fsync", self.fsync)
            yield self


# Runs --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("seed", range(SEARCHES))
def test_a_run_stops_in_one_line_and_goes_on_to_the_same_bytes(
    seed: int, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
):
    """Half a run is resumed on a disk with room for a few writes, and once more with room."""
    draw = random.Random(seed)
    run = tmp_path / "run"
    shutil.copytree(runs["half"], run)
    disk = Disk(draw.choice((0, 1, 2, 3, 5, 8, 13)), monkeypatch)
    with disk.full():
        code = call(["run", "--resume", str(run)])
    told = [line for line in capfd.readouterr().err.splitlines() if line.strip()]
    assert "Traceback" not in "\n".join(told)
    if disk.refused:
        assert code == 2, told
        assert "No space left on device" in "\n".join(told)
    assert call(["run", "--resume", str(run)]) == 0
    capfd.readouterr()
    wanted = (runs["whole"] / "metrics.jsonl").read_bytes()
    assert (run / "metrics.jsonl").read_bytes() == wanted
    assert json.loads(wanted.splitlines()[-1])["round"] == ROUNDS


# Nodes -------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("flwr", reason="needs the extra flower")
    pytest.importorskip("jax", reason="needs the extra classic")
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    from fedrl.engines.flower.policy import FILE

    monkeypatch.chdir(tmp_path)  # nodes change it
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / FILE).write_text("epsilon = 8.0\n")
    return tmp_path / "node"


@pytest.mark.parametrize("seed", range(SEARCHES // 2))
def test_a_node_tells_nothing_that_it_has_not_charged_and_logged(
    seed: int, home: Path, monkeypatch: pytest.MonkeyPatch
):
    from support.asked_nodes import AskedNode, broadcast, text

    from fedrl.privacy import accounting

    draw, noisy = random.Random(seed), {"privacy": {"clip": 1.0, "noise": 4.0, "where": "local"}}
    sent = broadcast(noisy)
    allowed = max(n for n in range(100) if accounting.full_view(4.0, n, 1e-5) <= 8)
    node, answered, refused = AskedNode(home), 0, 0
    for number in range(allowed + 6):
        if draw.random() < 0.2:
            node = AskedNode(home)  # restarted
        disk = Disk(draw.choice((0, 1, 2, 3, 4, 10**9, 10**9, 10**9)), monkeypatch)
        moved = sent | {"round": number} if "round" in sent else nudged(sent, number)
        with disk.full():
            reason = node.reason(text(noisy), sent=moved)
        answered += reason == ""
        refused += bool(disk.refused)
        assert not (disk.refused and reason == ""), "an answer left that could not be written"
        assert charges(home) >= answered
    entries = node.entries()  # asserts that the log is whole
    assert sum(entry["event"] == "update" for entry in entries) >= answered
    assert charges(home) <= allowed
    assert answered <= allowed
    assert refused


def nudged(sent: dict, number: int) -> dict:
    """Another model by the last places of one number: another job."""
    name = next(key for key, value in sent.items() if isinstance(value, dict))
    inner = next(iter(sent[name]))
    array = np.array(sent[name][inner])
    array.flat[0] += np.float32(number * 1e-3)
    return sent | {name: sent[name] | {inner: array}}


def charges(home: Path) -> int:
    ledger = home / "ledger.jsonl"
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0
