"""Two federations on one machine, with real SuperLinks and nodes: they share nothing, and both
sides say how they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_runs import MOMENTUM, QUICK, config, train

from fedrl.cli import call
from fedrl.engines.flower import child_processes, keys, local_federation
from fedrl.engines.flower.connection import FOLDER
from fedrl.engines.flower.local_federation import LocalFederation
from fedrl.engines.flower.node_check import reach
from fedrl.engines.flower.own_check import Joining
from fedrl.engines.flower.status import status

pytestmark = [pytest.mark.slow, pytest.mark.machines]


def wait(what: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.2)


def log(federation: LocalFederation, client: int = 0) -> str:
    return (federation.folder / f"node-{client}" / "node.log").read_text()


def test_two_federations_run_side_by_side_and_tell_how_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    monkeypatch.setattr(local_federation, "START_SECONDS", 300.0)
    first = LocalFederation(tmp_path / "first", 2, name="first", program=QUICK)
    second = LocalFederation(tmp_path / "second", 2, name="second", program=QUICK)
    with first, second:
        for federation in (first, second):
            wait(lambda federation=federation: "waiting for work" in log(federation))
            words = ("--engine", "flower", "--connection", federation.name)
            two = ("--federation.clients", "2")
            train(config(MOMENTUM, tmp_path / f"runs-{federation.name}", *words, *two, rounds=2))
        for federation in (first, second):
            assert "connected as node-0 (client 0); waiting for work" in log(federation)
            assert ": training, round 1" in log(federation)
            node, hub = federation.folder / "node-0", federation.folder / "server"
            told = "\n".join(status(node))
            assert f"connected to {federation.address} as node-0 (client 0)" in told
            assert "rounds answered" in told
            assert "no refusals" in told
            told = "\n".join(status(hub))
            assert told.count("last seen") == 2
            assert "1 run, the last one" in told
        _what_keeps_nodes_out(first, second, tmp_path)
        port = first.port
    capsys.readouterr()
    words = ["--superlink", f"127.0.0.1:{port}", "--ca", str(tmp_path / "first/server/ca.pem")]
    assert call(["flower", "check", *words, "--key", str(tmp_path / "first/node-0/key")]) == 1
    assert f"nothing listens at 127.0.0.1:{port}" in capsys.readouterr().out


def _what_keeps_nodes_out(first: LocalFederation, second: LocalFederation, tmp_path: Path) -> None:
    """At SuperLinks as they are: a key of the other federation, and the other's authority."""
    ca, key = first.folder / "server" / "ca.pem", first.folder / "node-0" / "key"
    assert all(one.good for one in reach(Joining(first.address, ca, key)))
    other = [*reach(Joining(first.address, ca, second.folder / "node-0" / "key"))][-1]
    assert other.what.startswith("your key is not registered yet: send key.pub")
    wrong = [*reach(Joining(first.address, second.folder / "server" / "ca.pem", key))][-1]
    assert wrong.what.startswith("this certificate is of another authority")
    keys.make_node(tmp_path / "new.key")
    new = Joining(first.address, ca, tmp_path / "new.key")
    assert "send new.key.pub" in [*reach(new)][-1].what
    public = (tmp_path / "new.key.pub").read_bytes()
    (first.folder / "server" / "nodes" / "client-2.pub").write_bytes(public)
    wait(lambda: all(one.good for one in reach(new)))  # it counts within seconds
    words = ["-m", "fedrl", "flower", "node", "--client", "0", "--superlink", first.address]
    words += ["--folder", str(first.folder / "node-0"), "--ca", str(ca), "--key", str(key)]
    again = child_processes.start(words, tmp_path / "home", tmp_path / "again.log")
    wait(lambda: again.poll() is not None)
    assert again.returncode == 2
    assert "another node runs in it" in (tmp_path / "again.log").read_text()
