"""The coordinator's log: who asked its SuperLink, who joined, and what a flood leaves in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from fedrl.core.types import Failure, Result
from fedrl.engines.flower import audit_log, keys
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit, of
from fedrl.engines.flower.node_check import CLIENT, PATH
from fedrl.engines.flower.superlink_guard import ACTIVATE, Guard


def stranger() -> bytes:
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def member(tmp_path: Path) -> bytes:
    """A node's key as Flower sends it."""
    keys.make_node(tmp_path / "key")
    key = load_ssh_public_key((tmp_path / "key.pub").read_bytes())
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def asked(
    audit: CoordinatorAudit,
    path: str,
    key: bytes | None,
    known: bytes,
    times: int,
    answer: int = 200,
    client: str = "",
) -> None:
    """So many requests to one guard, one after the other; `client` is what their node calls itself.
    The register has the known key as client 1's."""

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": answer, "headers": []})

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: Any) -> None: ...

    guard = Guard(behind, {"127.0.0.1"}, b"s" * 32, lambda _: key, lambda k: k == known,
                  audit=audit)  # fmt: skip
    guard.client_of = lambda key: "1" if key == known else ""
    headers = [(CLIENT.encode(), client.encode())] if client else []
    scope = {"type": "http", "path": path, "client": ("10.0.0.7", 4000), "headers": headers}

    async def all_of_them() -> None:
        for _ in range(times):
            await guard(dict(scope), receive, send)

    asyncio.run(all_of_them())


def test_connections_and_refusals_have_their_sender(tmp_path: Path, member: bytes):
    (tmp_path / "hub").mkdir()
    audit = CoordinatorAudit(tmp_path / "hub")
    asked(audit, ACTIVATE, member, member, 1)
    asked(audit, ACTIVATE, stranger(), member, 1)
    asked(audit, "/v1/control/start-run", None, member, 1)
    entries, damage, _ = audit_log.read(tmp_path / "hub")
    assert damage == []
    public = load_ssh_public_key((tmp_path / "key.pub").read_bytes())
    digest = keys.key_digest(public)  # type: ignore[arg-type]
    assert [(e["event"], e.get("key"), e.get("status")) for e in entries[1:]] == [
        ("activated", digest, None), ("unknown", entries[2]["key"], 412), ("unknown", None, 403),
    ]  # fmt: skip
    assert entries[2]["asked"] == f"{ACTIVATE} from 10.0.0.7"


def test_a_key_that_knocks_is_named_and_who_was_turned_away_was_not_seen(
    tmp_path: Path, member: bytes
):
    """Another organisation's node with this key is turned away by Flower while the first is in."""
    (tmp_path / "hub").mkdir()
    audit = CoordinatorAudit(tmp_path / "hub")
    other = stranger()
    asked(audit, ACTIVATE, member, member, 1, answer=412)
    asked(audit, ACTIVATE, other, member, 1)
    asked(audit, ACTIVATE, None, member, 1)
    entries, _, _ = audit_log.read(tmp_path / "hub")
    assert [(e["event"], e.get("key"), e.get("client"), e["status"]) for e in entries[1:]] == [
        ("unknown", keys.pem_digest(member), "1", 412),
        ("unknown", keys.pem_digest(other), None, 412),
        ("unknown", None, None, 401),
    ]


@pytest.mark.parametrize("client, told", [("2", 1), ("1", 0), ("", 0), ("x" * 9, 0), ("9" * 9, 0)])
def test_a_key_from_a_node_that_says_another_number(
    client: str, told: int, tmp_path: Path, member: bytes
):
    (tmp_path / "hub").mkdir()
    asked(CoordinatorAudit(tmp_path / "hub"), PATH, member, member, 1, client=client)
    entries, _, _ = audit_log.read(tmp_path / "hub")
    found = [entry["reason"] for entry in entries if entry["event"] == "left out"]
    line = "client 1's key came from a node that says it is client 2, from 10.0.0.7"
    assert found == [line] * told


def test_a_flood_of_requests_hides_nobody_who_connects(tmp_path: Path, member: bytes):
    (tmp_path / "hub").mkdir()
    audit = CoordinatorAudit(tmp_path / "hub")
    asked(audit, "/v1/control/start-run", None, member, 200)
    asked(audit, ACTIVATE, member, member, 1)
    last = audit_log.read(tmp_path / "hub")[0][-1]
    assert (last["event"], last["untold"]) == ("activated", 200 - audit_log.REFUSALS)


@pytest.mark.slow
def test_a_flood_of_requests_fills_no_disk(tmp_path: Path, member: bytes):
    (tmp_path / "hub").mkdir()
    audit = CoordinatorAudit(tmp_path / "hub")
    asked(audit, "/v1/control/start-run", None, member, 3000)
    audit.add("run", run="after")
    entries, damage, _ = audit_log.read(tmp_path / "hub")
    assert damage == []
    assert len(entries) == audit_log.REFUSALS + 2
    assert entries[-1]["untold"] == 3000 - audit_log.REFUSALS


def test_a_round_is_one_entry_with_everybodys_outcome(tmp_path: Path):
    audit = CoordinatorAudit(tmp_path)
    outcomes = {2: Result(2, {}), 0: Failure(0, "no\n  (secure)" + "x" * 999), 1: Result(1, {})}
    audit.outcomes("round", outcomes, run="a", round=3)
    entry = audit_log.read(tmp_path)[0][-1]
    assert entry["answered"] == [1, 2]
    assert list(entry["failed"]) == ["0"]
    assert entry["failed"]["0"].startswith("no (secure)xxx")
    assert len(entry["failed"]["0"]) == 300


def test_it_lies_beside_the_secret_or_nowhere(tmp_path: Path):
    here = of(Connection("x:1", secret=str(tmp_path / "secret")), print)
    here.add("run")
    assert (tmp_path / "audit.jsonl").is_file()
    of(Connection("x:1"), print).add("run")  # plain tests have neither
    of(Connection("x:1", secret=str(tmp_path / "none" / "secret")), print).add("run")
    assert not (tmp_path / "none").exists()
