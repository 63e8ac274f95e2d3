"""A node that explains itself: what keeps it out is said in words, before it joins and while it
runs."""

from __future__ import annotations

import email.utils
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedrl.cli import call
from fedrl.core.types import UserError

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.engines.flower import keys, node_story, status
from fedrl.engines.flower.adapter import records, superlink
from fedrl.engines.flower.address import Address, parse
from fedrl.engines.flower.audit_log import AuditLog
from fedrl.engines.flower.messages import Job, to_json
from fedrl.engines.flower.node_check import Joining, check, own, reach
from fedrl.engines.flower.node_story import Story


@pytest.mark.parametrize(
    "text, found",
    {
        "hub:9092": Address("hub", 9092),
        "hub.north.example:1": Address("hub.north.example", 1),
        "10.0.0.5:65535": Address("10.0.0.5", 65535),
        "[2001:db8::1]:9092": Address("2001:db8::1", 9092),
    }.items(),
)
def test_an_address_is_read_and_written(text: str, found: Address):
    assert parse(text) == found
    assert str(found) == text


@pytest.mark.parametrize(
    "text, said",
    {
        "hub": "it must be HOST:PORT",
        "": "it must be HOST:PORT",
        ":9092": "it must be HOST:PORT",
        "hub:": "is no port",
        "hub:http": "is no port",
        "hub:0": "is no port",
        "hub:70000": "is no port",
        "hub:９０９２": "is no port",
        "https://hub:9092": "write only HOST:PORT, hub:9092",
        "hub:9092/": "write only HOST:PORT, hub:9092",
        "2001:db8::1:9092": "write an IPv6 address as",
        "[hub]:9092": "no name and no address",
        "my hub:9092": "no name and no address",
        "-hub:9092": "no name and no address",
    }.items(),
)
def test_what_is_no_address_is_said(text: str, said: str):
    with pytest.raises(UserError, match="--superlink is") as error:
        parse(text)
    assert said in str(error.value)


def test_the_node_says_so_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["flower", "node", "--client", "0", "--superlink", "hub", "--insecure"]
    assert call([*words, "--folder", str(tmp_path)]) == 2
    assert "it must be HOST:PORT" in capsys.readouterr().err


# Joining ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    keys.make_server(folder, ["localhost"])
    return folder


@pytest.fixture
def north(hub: Path, tmp_path: Path) -> Joining:
    keys.make_node(tmp_path / "north.key")
    return Joining("", hub / "ca.pem", tmp_path / "north.key")


@contextmanager
def listening(hub: Path, registered: bool = True, ahead: float = 0.0) -> Iterator[str]:
    """A SuperLink that knows a key or not, by the same rules; its clock may be wrong."""

    class Reply(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            known = superlink.signing_key({k.lower(): v for k, v in self.headers.items()})
            self.send_response_only(404 if known and registered else 401)
            self.send_header("Date", email.utils.formatdate(time.time() + ahead, usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Reply)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hub / "server.pem", hub / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # who trusts it not leaves
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def failure(node: Joining) -> str:
    """What the last step says, which failed; all before it were good."""
    *before, last = reach(node)
    assert all(one.good for one in before)
    assert not last.good
    return last.what


def at(node: Joining, address: str, **changed: Path) -> Joining:
    known = {"ca": node.ca, "key": node.key, "folder": node.folder} | changed
    return Joining(address, **known)


def test_a_node_that_can_join_is_told_so(hub: Path, north: Joining, tmp_path: Path, capsys: Any):
    with listening(hub) as address:
        words = ["--superlink", address, "--ca", str(north.ca), "--key", str(north.key)]
        assert call(["flower", "check", *words, "--folder", str(tmp_path / "node")]) == 0
    told = capsys.readouterr().out
    assert "FAIL" not in told
    assert "your key north.key is registered" in told
    assert told.endswith("this node can join\n")
    assert not (tmp_path / "node").exists()  # a check changes nothing


def test_a_key_that_is_not_registered_says_what_to_send(hub: Path, north: Joining):
    with listening(hub, registered=False) as address:
        told = failure(at(north, address))
    assert told.startswith("your key is not registered yet: send north.key.pub to the coordinator")


def test_a_certificate_of_another_authority_is_none(hub: Path, north: Joining, tmp_path: Path):
    keys.make_server(tmp_path / "other", ["localhost"])
    with listening(hub) as address:
        told = failure(at(north, address, ca=tmp_path / "other" / "ca.pem"))
    assert told.startswith("this certificate is of another authority")


def test_a_certificate_for_another_name_is_none(north: Joining, tmp_path: Path):
    keys.make_server(tmp_path / "elsewhere", ["hub.example"])
    with listening(tmp_path / "elsewhere") as address:
        told = failure(at(north, address, ca=tmp_path / "elsewhere" / "ca.pem"))
    assert "not for the name localhost" in told


@pytest.mark.parametrize("ahead, said", [(-40, "40 s ahead"), (400, "400 s behind")])
def test_a_clock_that_is_off_is_told(hub: Path, north: Joining, ahead: float, said: str):
    """A node's clock may be 5 s ahead and 305 s behind, or its signatures are void."""
    with listening(hub, registered=False, ahead=ahead) as address:
        told = failure(at(north, address))
    number, side = said.split(" s ")
    assert f"s {side} of the coordinator's" in told
    assert abs(int(told.split("clock is ")[1].split()[0]) - int(number)) <= 2


def test_where_nothing_listens_and_names_that_nobody_knows(north: Joining):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert f"nothing listens at localhost:{port}" in failure(at(north, f"localhost:{port}"))
    assert "knows no nowhere.invalid" in failure(at(north, "nowhere.invalid:9092"))


def test_a_port_of_something_else(north: Joining):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def hello() -> None:
            for _ in range(2):  # who looks whether somebody listens, and who shakes hands
                line, _ = other.accept()
                line.sendall(b"220 mail.example ESMTP\r\n")
                line.close()

        threading.Thread(target=hello, daemon=True).start()
        told = failure(at(north, f"localhost:{other.getsockname()[1]}"))
    assert "speaks no TLS" in told or "ended the connection" in told


def test_a_key_that_others_can_read_and_files_that_are_none(
    hub: Path, north: Joining, tmp_path: Path
):
    assert north.key is not None
    with listening(hub) as address:
        north.key.chmod(0o644)
        assert "chmod 600" in failure(at(north, address))
        north.key.chmod(0o600)
        (tmp_path / "no.key").write_text("nonsense")
        assert "is no key of" in failure(at(north, address, key=tmp_path / "no.key"))
        assert "is no certificate" in failure(at(north, address, ca=tmp_path / "no.key"))


def test_a_policy_for_another_coordinator_is_told_even_if_nobody_listens(
    hub: Path, north: Joining, tmp_path: Path
):
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "policy.toml").write_text(f'coordinators = ["{"0" * 64}"]\n')
    found = list(check(at(north, "localhost:1", folder=tmp_path / "node")))
    assert [one.good for one in found] == [False, True, False]
    assert "do not name that of" in found[-1].what
    (tmp_path / "node" / "policy.toml").rename(tmp_path / "policy.toml")  # beside the key
    (found,) = [one for one in own(at(north, "", folder=tmp_path / "node")) if not one.good]
    assert "lies beside the key" in found.what


# While it runs ------------------------------------------------------------------------------------


def test_a_story_says_what_changes_and_keeps_it(tmp_path: Path, capsys: Any):
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    story.found(False, "nothing listens at hub:9092")
    story.found(False, "nothing listens at hub:9092")
    assert "not connected (client 0): nothing listens" in status.status(tmp_path)[0]
    story.found(True)
    story.found(True)
    job = Job(
        "0" * 32, client=0, seed=1, recipe="", digest="", run="a\nrun", round=3, attempt=0,
        state="", keep=1, deadline=9.0,
    )  # fmt: skip
    seen = []
    answer = story.told(lambda content: (seen.append(status.status(tmp_path)[0]), content)[1])
    answer(records.content(to_json(job)))
    lines = [line[9:] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "nothing listens at hub:9092",
        "connected as north (client 0); waiting for work",
        "run a run: training, round 3",
        "answered after 0 s; waiting for work",
    ]
    assert "connected to hub:9092 as north (client 0): run a run: training, round 3" in seen
    assert "waiting for work" in status.status(tmp_path)[0]


def test_a_node_that_is_gone_was_last_alive(tmp_path: Path):
    story = Story(Joining("hub:9092", None, Path("north.key")), 0, tmp_path)
    story.found(True)
    now = json.loads((tmp_path / node_story.NOW).read_text())
    (tmp_path / node_story.NOW).write_text(json.dumps(now | {"time": time.time() - 7200}))
    assert "was last alive 2 hours ago" in status.status(tmp_path)[0]
    with node_story.telling(story):
        pass
    assert not (tmp_path / node_story.NOW).exists()


def test_two_nodes_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(node_story, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(node_story, "_follow", lambda story, over: None)
    one, other = (Story(Joining(f"hub:{port}"), 0, tmp_path) for port in (1, 2))
    with node_story.telling(one), pytest.raises(UserError, match="another node runs in it"):
        node_story.telling(other).__enter__()
    with node_story.telling(other):
        pass


# Status -------------------------------------------------------------------------------------------


def test_a_node_tells_its_rounds_and_refusals(tmp_path: Path, capsys: Any):
    log = AuditLog(tmp_path)
    log.add("start", client=2, version="1", coordinator="c" * 64)
    for number in (1, 2):
        log.add("update", run="r", recipe="d", round=number, attempt=0, sent=10, epsilon=number / 2)
    log.add("refused", run="r", reason="its policy does not allow it")
    assert call(["flower", "status", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "is not running" in told
    assert "as client 2" in told
    assert "2 rounds answered" in told
    assert "own ε so far: 1" in told
    assert "1 refusal, the last:" in told
    assert "its policy does not allow it" in told


def test_a_coordinator_tells_its_members(tmp_path: Path):
    hub = tmp_path / "hub"
    (hub / "nodes").mkdir(parents=True)
    digests = []
    for number in (0, 1):
        keys.make_node(tmp_path / f"{number}.key")
        public = (tmp_path / f"{number}.key.pub").read_bytes()
        (hub / "nodes" / f"client-{number}.pub").write_bytes(public)
        digests.append(status._members(hub)[number][1])
    log = AuditLog(hub)
    log.add("link", host="0.0.0.0", port=9092, version="1")
    log.add("registered", file="client-0.pub", key=digests[0])
    log.add("activated", key=digests[0], address="10.0.0.1")
    log.add("run", run="r", recipe="d", clients=2)
    log.add("round", run="r", recipe="d", round=1, attempt=0, answered=[0], failed={"1": "away"})
    log.add("unknown", asked="/v1/fleet/activate-node from 10.0.0.9", status=412)
    log.add("unknown", asked="/v1/fleet/check from 10.0.0.1", status=404)
    told = re.sub(r"\d+ seconds? ago", "just now", "\n".join(status.status(hub)))
    assert f"client 0, key {digests[0][:16]}: last seen just now, 1 round answered\n" in told
    assert f"client 1, key {digests[1][:16]}: never seen, 0 rounds answered, not registered" in told
    assert "1 round, the last one just now: number 1, 1 answered, 1 did not" in told
    assert "1 refusal, the last:" in told  # a check that went well is none
    assert "a key that is not registered, or a clock that is off: /v1/fleet/activate-node" in told


def test_a_folder_of_neither_side_is_told(tmp_path: Path, capsys: Any):
    assert call(["flower", "status", str(tmp_path)]) == 2
    assert "has no audit log and no nodes/" in capsys.readouterr().err
