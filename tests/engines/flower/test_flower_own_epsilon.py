"""Nodes with an ε of their own on real processes: one that is killed loses no charge."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")
pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")

from support.flower_runs import MOMENTUM, QUICK, on_flower, records

from fedrl.engines.flower import audit_log, audit_story
from fedrl.engines.flower.connection import FOLDER
from fedrl.engines.flower.local_federation import LocalFederation
from fedrl.engines.flower.policy import FILE
from fedrl.privacy import accounting

pytestmark = [pytest.mark.machines, pytest.mark.xdist_group("flower machines")]
CLIENTS, KILLED, NOISE, ANSWERS = 4, 1, 6.0, 6
EPSILON = accounting.full_view(NOISE, ANSWERS, 1e-5)
SECRET = [
    "--federation.clients", str(CLIENTS), "--privacy.clip", "1", "--privacy.secure", "true",
    "--privacy.noise", str(NOISE), "--federation.deadline", "40", "--federation.retries", "4",
]  # fmt: skip


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFederation]:
    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    for client in range(CLIENTS):
        (tmp_path / f"node-{client}").mkdir()
        policy = f"epsilon = {EPSILON * 1.0001}\nsecure = true\nclip = 1.0\nleast_clients = 3\n"
        (tmp_path / f"node-{client}" / FILE).write_text(policy)
    with LocalFederation(tmp_path, CLIENTS, name="test", program=QUICK, peers=True) as federation:
        yield federation


def charges(folder: Path) -> int:
    path = folder / "ledger.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def test_a_killed_node_neither_forgets_nor_pays_twice(up: LocalFederation, tmp_path: Path):
    place = up.folder / f"node-{KILLED}"

    def kill() -> None:
        """When it has charged its second answer: the masked numbers are about to leave."""
        until = time.monotonic() + 200
        while charges(place) < 2 and time.monotonic() < until:
            time.sleep(0.002)
        up.nodes[KILLED].kill()
        up.nodes[KILLED].wait()
        up.start_node(KILLED)

    killer = threading.Thread(target=kill)
    killer.start()
    run = on_flower(MOMENTUM, tmp_path / "runs", *SECRET, rounds=4)
    killer.join()
    rounds = [json.loads(line)["round"] for line in (run / "metrics.jsonl").open()]
    assert rounds == list(range(5))
    assert "ok" in {r["status"] for r in records(run)}
    hub, damage, _ = audit_log.read(up.folder / "server")
    assert damage == []
    for client in range(CLIENTS):
        folder = up.folder / f"node-{client}"
        entries, damage, _ = audit_log.read(folder)
        assert damage == []
        masked = [e for e in entries if e["event"] == "masked"]
        lines = [json.loads(line) for line in (folder / "ledger.jsonl").open()]
        # A charge whose answer a kill kept back stays charged.
        assert len(masked) <= len(lines) <= len(masked) + (client == KILLED)
        assert len({line["job"] for line in lines}) == len(lines)
        assert [e["charges"] for e in masked] == sorted({e["charges"] for e in masked})
        for entry in masked:
            spent = accounting.full_view(NOISE, entry["charges"], 1e-5)
            assert entry["epsilon"] == pytest.approx(spent)
        assert all(len(e["members"]) >= 3 for e in entries if e["event"] == "opened")
        assert audit_story.differences(hub, entries, client) == []
    # What is left of their ε is left, and not more: of a second run only so many rounds.
    left = ANSWERS - max(charges(up.folder / f"node-{c}") for c in range(CLIENTS))
    assert left >= 0
    with pytest.raises(Exception, match="its own ε would be"):
        on_flower(MOMENTUM, tmp_path / "more", *SECRET, "--seed", "9", rounds=8)
    assert all(charges(up.folder / f"node-{c}") <= ANSWERS for c in range(CLIENTS))
    plain = on_plain(tmp_path)
    assert "privacy.secure: this node sends updates only into secure sums: run it with" in plain


def on_plain(tmp_path: Path) -> str:
    """What a driver is told that asks for updates as they are."""
    words = ["--federation.clients", str(CLIENTS), "--federation.retries", "0"]
    with pytest.raises(Exception, match="privacy") as told:
        on_flower(MOMENTUM, tmp_path / "plain", *words, rounds=1)
    return str(told.value)
