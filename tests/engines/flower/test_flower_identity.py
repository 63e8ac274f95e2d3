"""Members, keys and certificates that change while a run goes on: on real processes.

A node takes up its new key between two messages, a SuperLink its new certificate between two
connections: the numbers of the run are those of a run in which nothing happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_runs import CLASSICS, config, one_by_one, records, same_numbers

import fedrl
from fedrl.engines.flower import keys
from fedrl.engines.flower.audit_log import read as read_log
from fedrl.engines.flower.connection import FOLDER
from fedrl.engines.flower.local_federation import LocalFederation
from fedrl.federation.round_loop import Round

pytestmark = pytest.mark.machines

METHOD = CLASSICS["qavg"]
SECURE = ("--privacy.secure", "true", "--privacy.clip", "1.0")
PATIENCE = 240.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    monkeypatch.setattr("fedrl.engines.flower.local_federation.START_SECONDS", 300.0)
    return tmp_path / "federation"


def eventually(happens: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < until, what
        time.sleep(0.5)


def entries(server: Path, event: str) -> list[dict]:
    return [entry for entry in read_log(server)[0] if entry["event"] == event]


def run(out: Path, between: Callable[[int], None], *flags: str, rounds: int = 4) -> Path:
    """A run on the federation in which something is done after each round."""

    def done(finished: Round) -> None:
        between(finished.round)

    words = ("--engine", "flower", "--connection", "test", *flags)
    return fedrl.run(config(METHOD, out, *words, rounds=rounds), callbacks=[done]).path


@pytest.mark.parametrize("secure", [False, True])
def test_a_key_and_the_certificate_change_in_a_run_and_nothing_is_lost(
    place: Path, tmp_path: Path, secure: bool
):
    server, key = place / "server", place / "node-0" / "key"

    def changed() -> None:
        new = keys.key_digest(keys_of(server, 0)[-1])
        eventually(
            lambda: any(entry["key"] == new for entry in entries(server, "activated")),
            "the node has not changed its key",
        )

    def change(finished: int) -> None:
        if finished == 1:
            fedrl.flower.renew_server_certificate(server)
            eventually(lambda: bool(entries(server, "certificate")), "no new certificate")
            fedrl.flower.register(server, fedrl.flower.renew_node_key(key))
            eventually(lambda: len(entries(server, "registered")) == 4, "not registered")
            fedrl.flower.use_node_key(key)  # the next round may meet it in the middle of that
            if secure:
                changed()
        elif finished == 2:
            changed()
            assert fedrl.flower.revoke(server, 0, old=True) == 1
            eventually(lambda: len(entries(server, "revoked")) == 1, "not revoked")

    with LocalFederation(place, 3, name="test", peers=secure):
        done = run(tmp_path / "runs", change, *(SECURE if secure else ()))
    told = records(done)
    assert len(told) == 4 * 3
    assert not [record for record in told if record.get("reason")]
    joined = [(entry["client"], entry["key"]) for entry in entries(server, "joined")]
    assert len({key for client, key in joined if client == 0}) == 2
    assert not entries(server, "left out")
    if not secure:
        same_numbers(done, one_by_one(METHOD, tmp_path / "alone", rounds=4))
    # What it left is the coordinator's.
    said = fedrl.verify(done, [str(server / "ca.pem")])
    assert (said.wrong, said.round) == ("", 4)
    assert said.recipe == entries(server, "run")[0]["recipe"]
    meta = json.loads((done / "meta.json").read_text())
    assert meta["coordinator"] == keys.coordinator_digest(server / "ca.pem")


def keys_of(server: Path, client: int) -> list:
    from fedrl.engines.flower.registered import Registered

    return [key for key, _ in Registered(server / "nodes").clients()[client]]


def test_a_revoked_client_is_out_and_a_new_one_comes_in_while_the_superlink_runs(
    place: Path, tmp_path: Path
):
    server, node = place / "server", place / "node-2"

    def change(finished: int) -> None:
        if finished == 1:
            fedrl.flower.revoke(server, 2)
            eventually(lambda: len(entries(server, "revoked")) == 1, "not revoked")
        elif finished == 2:
            for name in ("key", "key.pub"):
                (node / name).unlink()
            keys.make_node(node / "key", "west")
            fedrl.flower.register(server, node / "key.pub", client=2)
            new = keys.key_digest(keys_of(server, 2)[0])
            eventually(
                lambda: any(entry["key"] == new for entry in entries(server, "activated")),
                "the new key did not come in",
            )

    with LocalFederation(place, 3, name="test") as federation:
        before = federation.link
        eventually(lambda: len(entries(server, "activated")) == 3, "not all nodes came")
        done = run(tmp_path / "runs", change, "--flower.wait", "20")
        assert federation.link is before
        assert federation.running()
    failed = [(r["round"], r["client"]) for r in records(done) if r.get("reason")]
    assert failed == [(2, 2)]
    assert [entry["name"] for entry in entries(server, "joined") if entry["client"] == 2][
        -1
    ] == "west"
    assert any("/v1/fleet/" in entry["asked"] for entry in entries(server, "unknown"))
