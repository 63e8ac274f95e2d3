"""A member under another's number: a client's place belongs to its key, also while it is away.

A node says itself which client it is. A member could say the number of a client that is absent,
take its jobs and its vote, and send what it likes under that name.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from support.flower_nodes import Inline, Net, in_small_pieces
from support.toy import Toy

from fedrl.core.types import Failure, Job, Result, UserError
from fedrl.engines.flower import child_processes, keys
from fedrl.engines.flower.connection import FOLDER, Connection, find, save
from fedrl.engines.flower.engine import FlowerEngine, Recipe

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core

CLIENTS = 4


class Hub(Net):
    """Nodes with keys; `speaks[node]` is a number that a node says instead of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Toy(CLIENTS), folder / "nodes", CLIENTS)
        self.folder = folder / "hub"
        (self.folder / "nodes").mkdir(parents=True)
        (self.folder / "secret").write_bytes(b"x" * 32)
        self.keys = {}
        for number in range(CLIENTS + 1):
            keys.make_node(folder / f"key{number}")
            self.keys[100 + number] = folder / f"key{number}.pub"
        for number in range(CLIENTS):
            self.register(number, 100 + number)
        self.said: list[str] = []

    def register(self, number: int, node: int) -> None:
        place = self.folder / "nodes" / f"client-{number}.pub"
        place.write_bytes(self.keys[node].read_bytes())

    def claim(self, node: int, number: int) -> None:
        member = self.members[100]
        folder = self.folder.parent / f"claims{node}"
        self.members[node] = Inline(number, folder, member.plan, log=lambda line: None)

    def key_of(self, node: int):
        return load_ssh_public_key(self.keys[node].read_bytes())

    def engine(self, **settings: object) -> FlowerEngine:  # type: ignore[override]
        here = Connection("x:1", ca="ca.pem", secret=str(self.folder / "secret"))
        chosen = in_small_pieces(**({"wait": 0.0} | settings))
        return FlowerEngine(
            self.algorithm, Recipe("run", "", 3), here, chosen, self.said.append, self.open
        )


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def jobs(seed: int = 1) -> list[Job]:
    toy = Toy(CLIENTS)
    sent = toy.broadcast(toy.init(0), 1)
    return [Job(client, sent, None, seed + client) for client in range(CLIENTS)]


def failed(found: list[Result | Failure]) -> dict[int, str]:
    return {one.client: one.reason for one in found if isinstance(one, Failure)}


def test_everybody_with_its_own_key_takes_part(hub: Hub):
    assert failed(list(hub.engine().run(jobs()))) == {}
    assert hub.said == []


def test_a_member_does_not_take_the_place_of_an_absent_client(hub: Hub):
    del hub.members[101]
    hub.claim(103, 1)  # a registered node, under another number
    found = list(hub.engine().run(jobs()))
    assert failed(found) == dict.fromkeys((1, 3), "no node of this client is connected")
    assert len(hub.said) == 1
    assert re.match(
        r"the node with key [0-9a-f]{16} of client 3\b.* is left out: it says that it is client 1,",
        hub.said[0],
    )
    assert "its key is that of client 3" in hub.said[0]


def test_neither_in_a_later_round_nor_after_a_resume_nor_when_the_superlink_was_away(hub: Hub):
    engine = hub.engine()
    assert failed(list(engine.run(jobs()))) == {}
    del hub.members[101]
    hub.claim(103, 1)
    assert set(failed(list(engine.run(jobs(10))))) == {1, 3}
    assert set(failed(list(hub.engine().run(jobs(20))))) == {1, 3}  # another process of the driver
    hub.lost.append("pull")
    assert set(failed(list(engine.run(jobs(30))))) == {1, 3}
    hub.members[101] = Inline(1, hub.folder.parent / "back", hub.members[100].plan)
    hub.claim(103, 3)
    assert failed(list(engine.run(jobs(40)))) == {}


def test_it_does_not_keep_the_true_one_out(hub: Hub):
    """Whoever comes first: two that say the same number stopped a run before."""
    hub.claim(103, 1)
    assert set(failed(list(hub.engine().run(jobs())))) == {3}


def test_a_key_without_a_number_is_nobody(hub: Hub):
    """Registered at the SuperLink under another name: a member, but no client yet."""
    del hub.members[102]
    hub.claim(104, 2)
    place = hub.folder / "nodes"
    (place / "east.pub").write_bytes(hub.keys[104].read_bytes())
    engine = hub.engine()
    assert set(failed(list(engine.run(jobs())))) == {2}
    assert "its key is no client's" in hub.said[0]
    hub.register(2, 104)  # its organisation has made a new key
    assert failed(list(engine.run(jobs(10)))) == {}


def test_one_key_has_one_number(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    del hub.members[101]
    hub.register(1, 103)
    engine = hub.engine()
    assert set(failed(list(engine.run(jobs())))) == {1, 3}
    assert "its key is in client-1.pub and client-3.pub" in hub.said[0]
    with pytest.raises(UserError, match=r"client-1\.pub and client-3\.pub are the same key"):
        engine.calls.connection.registered().check()


def test_files_that_are_no_keys_harm_nobody(hub: Hub):
    place = hub.folder / "nodes"
    for name, data in {
        "client-7.pub": b"", "client-08.pub": hub.keys[104].read_bytes(), "client-9.pub": b"\xff",
        "client-99999999999999999999.pub": b"ssh-unknown AAAA",
    }.items():  # fmt: skip
        (place / name).write_bytes(data)
    (place / "client-6.pub").mkdir()
    assert failed(list(hub.engine().run(jobs()))) == {}


def test_a_connection_says_where_the_keys_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    save("hub", Connection("h:1", "ca.pem", "secret", str(tmp_path / "nodes")))
    assert find("hub").registered().folder == tmp_path / "nodes"
    assert Connection("h:1", "ca.pem", "/srv/hub/secret").registered().folder == Path(
        "/srv/hub/nodes"
    )
    assert Connection("h:1").registered() is None  # plain text: nobody has a key
    with pytest.raises(UserError, match=r"has no client-0\.pub"):
        find("hub").registered().check()


# Real processes ---------------------------------------------------------------------------------


@pytest.mark.machines
@pytest.mark.xdist_group("flower machines")
def test_on_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """TLS and registered keys: a member takes the number of a client whose node was stopped."""
    from support.flower_runs import MOMENTUM, QUICK, on_flower, records

    from fedrl.engines.flower.local_federation import LocalFederation

    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    with LocalFederation(tmp_path / "up", 4, name="test", program=QUICK) as up:
        child_processes.stop([up.nodes[1], up.nodes[3]])
        folder = tmp_path / "up" / "node-3"
        words = ["--client", "1", "--superlink", up.address, "--folder", str(folder)]
        words += ["--ca", str(up.folder / "server" / "ca.pem"), "--key", str(folder / "key")]
        up.nodes[3] = child_processes.start(
            [*up.program, *words], folder / "flwr", folder / "again.log"
        )
        flags = ("--flower.wait", "45", "--federation.clients", "3")
        run = on_flower(MOMENTUM, tmp_path / "runs", *flags, rounds=1)
    told = [r for r in records(run) if r["status"] == "failed"]
    assert {r["client"] for r in told} == {1}
    assert "no node of this client is connected" in told[0]["reason"]
    log = (run / "log.txt").read_text()
    assert "it says that it is client 1, but its key is that of client 3" in log
    assert json.loads((run / "meta.json").read_text())["status"] == "finished"
