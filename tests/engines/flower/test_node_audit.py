"""What a node writes down: every answer before it leaves, or none leaves."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")
pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")

from support.asked_nodes import AskedNode, broadcast, text
from support.secure_nodes import CLIENTS, SecretNet, jobs, no_answer
from support.toy import Toy

from fedrl.core import chained_lines
from fedrl.core.types import Failure, Result
from fedrl.engines.flower import approval, audit_log, audit_story
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.policy import FILE
from fedrl.privacy import accounting

NOISY = {"privacy": {"clip": 1.0, "noise": 4.0, "where": "local"}}
OWN = "epsilon = 8.0\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # nodes change it
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.005)
    (tmp_path / "node").mkdir()
    return tmp_path / "node"


def events(node: AskedNode) -> list[str]:
    return [entry["event"] for entry in node.entries()]


def test_an_update_and_a_refusal(home: Path):
    node = AskedNode(home, coordinator="c" * 64)
    recipe = text({"rounds": 3})
    assert node.reason(recipe, sent=broadcast(), round=3, attempt=1) == ""
    assert node.ready(recipe) == ""
    assert "attack.share" in node.reason(text({"attack": {"share": 0.3}}), round=4)
    assert "known" not in node.step("ff", "mask")
    entries = node.entries()
    assert events(node) == ["begin", "policy", "update", "ready", "refused", "refused"]
    update = entries[2]
    told = {key: update[key] for key in ("run", "recipe", "round", "attempt", "coordinator")}
    assert told == {
        "run": "run", "recipe": approval.digest(recipe), "round": 3, "attempt": 1,
        "coordinator": "c" * 16,
    }  # fmt: skip
    assert update["sent"] > 100
    assert update["received"] > 100
    assert update["noise"] == 0.0
    assert "attack.share: this node rehearses no attacks" in entries[4]["reason"]
    assert math.isinf(audit_story.spent(entries))


def test_what_it_cannot_write_down_it_does_not_tell(home: Path, monkeypatch: pytest.MonkeyPatch):
    node, sent = AskedNode(home), broadcast()
    assert node.reason(text(), sent=sent) == ""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(chained_lines.os, "fsync", full)
        assert node.reason(text(), sent=sent) == "its audit log cannot be written"
    assert node.reason(text(), sent=sent) == ""
    lines = (home / "audit.jsonl").read_text().splitlines()
    (home / "audit.jsonl").write_text("\n".join([*lines[:2], *lines[3:]]) + "\n")
    assert node.reason(text(), sent=sent).startswith("its audit log is damaged: line 3 entry 2 is")


def test_texts_that_cannot_be_written_are_refused_and_written_down(home: Path):
    """Half of a surrogate pair is a text in JSON, and none in UTF-8."""
    node = AskedNode(home)
    for recipe, run in (("x = '\ud800'", "run"), (text(), "\ud800\x00")):
        assert node.reason(recipe, run=run) != ""
        assert node.ready(recipe + "#") is not None
    assert len(events(node)) == 6
    assert events(node)[:2] == ["begin", "policy"]


def test_garbage_is_written_down_as_well(home: Path):
    from fedrl.engines.flower.adapter import records

    node = AskedNode(home)
    node.client.answer(records.content('{"kind": "job"}'))
    assert events(node) == ["begin", "refused"]


# ε of the policy ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_epsilon_of_the_policy_is_counted_and_is_the_end(home: Path):
    (home / FILE).write_text(OWN)
    node, sent = AskedNode(home), broadcast(NOISY)
    allowed = max(n for n in range(100) if accounting.full_view(4.0, n, 1e-5) <= 8)
    assert allowed >= 3
    for number in range(allowed):
        assert node.reason(text(NOISY), sent=sent, seed=number) == ""
    spent = [e["epsilon"] for e in node.entries() if e["event"] == "update"]
    exact = [accounting.full_view(4.0, n + 1, 1e-5) for n in range(allowed)]
    assert spent == pytest.approx(exact)
    again = AskedNode(home).reason(text(NOISY), sent=sent, seed=0)
    assert again == "it has answered this job before, and gives no new noise on it"
    for recipe in (text(NOISY), text(NOISY, {"privacy": {"epsilon": 99.0, "delta": 0.5}})):
        assert "above its privacy.epsilon = 8" in node.reason(recipe, sent=sent, seed=1000)
    assert audit_story.spent(node.entries()) == pytest.approx(exact[-1])
    assert len((home / "ledger.jsonl").read_text().splitlines()) == allowed


def test_a_ledger_that_was_put_back_is_found_by_the_log(home: Path, tmp_path: Path):
    """Both of its files together, which it cannot notice itself."""
    (home / FILE).write_text(OWN)
    node, sent = AskedNode(home), broadcast(NOISY)
    assert node.reason(text(NOISY), sent=sent, seed=1) == ""
    for name in ("ledger.jsonl", "ledger.head"):
        shutil.copy(home / name, tmp_path / name)
    assert node.reason(text(NOISY), sent=sent, seed=2) == ""
    for name in ("ledger.jsonl", "ledger.head"):
        shutil.copy(tmp_path / name, home / name)
    for one in (node, AskedNode(home)):
        found = one.reason(text(NOISY), sent=sent, seed=3)
        assert found == "its ledger of what it has answered is older than its audit log"
    for name in ("ledger.jsonl", "ledger.head"):
        (home / name).unlink()
    assert "older than" in AskedNode(home).reason(text(NOISY), sent=sent, seed=3)


def test_without_noise_there_is_no_answer_where_epsilon_is_counted(home: Path):
    (home / FILE).write_text(OWN)
    node = AskedNode(home)
    assert "(epsilon)" in node.reason(text())
    assert "(epsilon)" in node.ready(text({"privacy": {"clip": 1.0, "noise": 4.0}}))
    assert not (home / "ledger.jsonl").exists()


# Secure sums --------------------------------------------------------------------------------------


@pytest.fixture
def net(home: Path) -> SecretNet:
    return SecretNet(Toy(CLIENTS), home)


def test_a_sum_step_by_step_with_its_members(net: SecretNet, home: Path):
    net.changes["mask", 1] = no_answer
    (home / "hub").mkdir()
    engine = net.engine()
    engine.audit = CoordinatorAudit(home / "hub")
    found = list(engine.run(jobs(net), 0.3))
    assert [isinstance(o, Result) for o in found] == [n != 1 for n in range(CLIENTS)]
    entries, damage, _ = audit_log.read(home / "0")
    assert damage == []
    assert [e["event"] for e in entries] == [
        "begin", "keys", "letters", "masked", "agreed", "opened",
    ]  # fmt: skip
    everybody, survivors = list(range(CLIENTS)), [n for n in range(CLIENTS) if n != 1]
    members = [e["members"] for e in entries[2:]]
    assert members == [everybody, everybody, survivors, survivors]
    assert {e["recipe"] for e in entries[1:]} == {approval.digest("")}
    (told,) = [e for e in audit_log.read(home / "hub")[0] if e["event"] == "round"]
    assert told["answered"] == survivors
    assert told["summed"]
    for client in survivors:
        theirs = audit_log.read(home / str(client))[0]
        assert audit_story.differences([told], theirs, client) == []


def test_a_policy_that_changes_in_the_middle_of_a_sum_ends_it(net: SecretNet):
    from fedrl.engines.flower.policy import Policy

    for node in net.members.values():
        node.rules = lambda: Policy(secure=True)
    found = list(net.engine().run(jobs(net)))
    assert all(isinstance(o, Failure) for o in found)
    assert {o.reason for o in found} == {"its policy has changed since this job began"}


def test_a_policy_that_changes_while_a_client_trains_keeps_its_update_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    node, sent = AskedNode(home), broadcast()
    (home / FILE).write_text("")
    compute = type(node.client)._compute

    def training(self: object, *words: object) -> object:
        (home / FILE).write_text("secure = true")
        return compute(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(type(node.client), "_compute", training)
    found = node.reason(text(), sent=sent)
    assert found == "its policy has changed since this job began"
    assert "update" not in events(node)


# The coordinator's --------------------------------------------------------------------------------


def test_the_coordinators_log_of_joins_rounds_and_reasons(net: SecretNet, home: Path):
    (home / "hub").mkdir()
    engine = net.engine()
    engine.audit = engine.calls.audit = engine.calls.nodes.audit = CoordinatorAudit(home / "hub")
    with engine:
        list(engine.run(jobs(net), 0.3))
    entries, damage, _ = audit_log.read(home / "hub")
    assert damage == []
    named = [e["event"] for e in entries]
    assert named == ["begin", *["joined"] * CLIENTS, "round", "ended"]
    assert entries[-1]["completed"]


def test_a_log_that_cannot_be_written_stops_no_run(home: Path):
    (home / "audit.jsonl").write_text("{}\n")
    said: list[str] = []
    audit = CoordinatorAudit(home, said.append)
    for _ in range(3):
        audit.add("run")
    assert len(said) == 1
    assert said[0].startswith("the coordinator's audit log ends here: its audit log is damaged")


def test_logs_hold_nothing_of_the_update(home: Path):
    """Names, numbers of bytes and digests: no tensor, no metric."""
    node = AskedNode(home)
    node.reason(text(), sent=broadcast())
    (update,) = [e for e in node.entries() if e["event"] == "update"]
    known = {"n", "time", "event", "run", "recipe", "round", "attempt", "coordinator", "sent"}
    assert set(update) == known | {"received", "noise"}
    assert len(json.dumps(update)) < 400
