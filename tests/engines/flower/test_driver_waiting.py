"""A driver that waits says for whom or what, soon and then seldom; where nothing listens, it says
that and ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_nodes import Net
from support.toy import Toy

from fedrl.config.flower import Settings
from fedrl.core.types import Failure, Job, Result, UserError
from fedrl.engines.flower import driver_waiting, keys
from fedrl.engines.flower.connection import FOLDER, Connection, Lost, find, save
from fedrl.engines.flower.driver_waiting import AwaitedNodes, Reminder
from fedrl.engines.flower.node_calls import NodeCalls
from fedrl.engines.flower.registered import Registered
from fedrl.engines.flower.superlink_client import wait_for

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core

CLIENTS = 3


class Clock:
    """Passes only while somebody sleeps; `events` happen at their seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: dict[float, Callable[[], object]] = {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when in [when for when in self.events if self.now >= when]:
            self.events.pop(when)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    monkeypatch.setattr("time.sleep", clock.sleep)
    return clock


def all_jobs() -> list[Job]:
    toy = Toy(CLIENTS)
    sent = toy.broadcast(toy.init(0), 1)
    return [Job(client, sent, None, 7 + client) for client in range(CLIENTS)]


def outcomes(net: Net, said: list[str], wait: float) -> list[Result | Failure]:
    return list(net.engine(said.append, wait=wait).run(all_jobs()))


def seconds(line: str) -> str:
    return line.partition("(")[2].partition(" of")[0]


def test_a_node_that_comes_late_is_named_soon_and_then_seldom(tmp_path: Path, clock: Clock):
    net, said = Net(Toy(CLIENTS), tmp_path, CLIENTS), list[str]()
    late = net.members.pop(101)
    clock.events[100.0] = lambda: net.members.update({101: late})
    assert [type(o) for o in outcomes(net, said, 120.0)] == [Result] * CLIENTS
    *waited, end = said
    assert waited[0] == (
        "waiting for client 1: 1 of 3 nodes has not come yet (1 s of 2 min 00 s, flower.wait)"
    )
    assert [seconds(line) for line in waited] == ["1 s", "31 s", "1 min 31 s"]
    assert end == "all nodes that were awaited are here, after 1 min 40 s"


@pytest.mark.parametrize(
    "mute, said",
    [
        (1, "; one is connected and has not said which client's it is ("),
        (3, "; 3 are connected and have not said which clients' they are ("),
    ],
)
def test_who_is_connected_and_nobodys_yet_is_counted(mute: int, said: str, clock: Clock):
    lines: list[str] = []
    waiting = AwaitedNodes(lines.append, None)
    for clock.now in (0.0, 2.0):
        waiting.looked({0: 60.0}, {0}, (), mute)
    assert said in lines[0]


def test_who_is_waited_for_in_vain_is_named_once(tmp_path: Path, clock: Clock):
    net, said = Net(Toy(CLIENTS), tmp_path, CLIENTS), list[str]()
    del net.members[101], net.members[102]
    assert [type(o) for o in outcomes(net, said, 20.0)] == [Result, Failure, Failure]
    assert said == [
        "waiting for client 1 and client 2: 2 of 3 nodes have not come yet "
        "(1 s of 20 s, flower.wait)",
        "no longer waiting for client 1 and client 2, after 20 s: their nodes did not come",
    ]


@pytest.mark.parametrize("asked", ["run", "submit"])
def test_the_time_without_a_superlink_is_not_the_nodes(
    asked: str, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """It comes after ten minutes, and its nodes need a moment to connect again."""
    net = Net(Toy(CLIENTS), tmp_path, CLIENTS)
    late, opened = dict(net.members), net.open
    net.members.clear()

    def slowly(*of: Any) -> Net:
        clock.now += 599.0
        clock.events[clock.now + 10.0] = lambda: net.members.update(late)
        return opened(*of)

    monkeypatch.setattr(net, "open", slowly)
    engine, jobs = net.engine(lambda line: None, wait=60.0), all_jobs()
    if asked == "run":
        found = list(engine.run(jobs))
    else:
        engine.submit(jobs)
        found = [engine.next_outcome()[1] for _ in jobs]
    assert [type(outcome) for outcome in found] == [Result] * CLIENTS


def test_nodes_that_are_here_are_no_news(tmp_path: Path, clock: Clock):
    said: list[str] = []
    outcomes(Net(Toy(CLIENTS), tmp_path, CLIENTS), said, 120.0)
    assert said == []


def test_a_recipe_with_more_clients_than_members_is_told_with_the_flag(
    tmp_path: Path, clock: Clock
):
    said: list[str] = []
    register = Registered(tmp_path / "nodes")
    register.folder.mkdir()
    until = dict.fromkeys(range(3), 60.0)
    for number, name in enumerate(("north", "south")):
        keys.make_node(tmp_path / f"{name}.key")
        register.add(tmp_path / f"{name}.key.pub", number)
    flag = "the recipe has more clients, and 2 keys are registered: --federation.clients 2"
    for missing, told in ({2}, True), ({1}, False), ({1, 2}, True):
        clock.now, waiting = 0.0, AwaitedNodes(said.append, register)
        waiting.looked(until, missing, {0}, 0)
        clock.now = 1.0
        waiting.looked(until, missing, {0}, 0)
        assert said[-1].endswith(flag) == told


def test_members_are_called_by_their_names(tmp_path: Path, clock: Clock):
    said: list[str] = []
    (tmp_path / "nodes").mkdir()
    keys.make_node(tmp_path / "south.key")
    register = Registered(tmp_path / "nodes")
    register.add(tmp_path / "south.key.pub", 1)
    waiting, until = AwaitedNodes(said.append, register), dict.fromkeys(range(9), 60.0)
    waiting.looked(until, {1, 2}, {0}, 0)
    clock.now = 1.0
    waiting.looked(until, {1, 2}, {0}, 0)
    assert said[0].startswith(
        "waiting for client 1 (south) and client 2 (whose key is not registered: fedrl flower "
        "register): 2 of 9 nodes have not"
    )
    clock.now = 31.0
    waiting.looked(until, range(8), {8}, 0)
    assert " and 3 more: 8 of 9 nodes" in said[1]


def test_what_stays_true_is_said_ever_more_seldom(clock: Clock):
    reminder, said = Reminder(), list[float]()
    for second in range(1300):
        clock.now = float(second)
        if reminder.due("the same"):
            said.append(second)
    assert said == [0, 30, 90, 210, 450, 750, 1050]
    assert reminder.due("another")


# A SuperLink that is not there --------------------------------------------------------------------


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_where_nothing_listens_a_driver_says_so_and_ends(closed: str):
    said: list[str] = []
    calls = NodeCalls(Connection(closed), Settings(patience=1.5), said.append, wait_for)
    with pytest.raises(UserError) as end:
        calls.link()
    assert len(said) == 1
    assert said[0].startswith("waiting for the SuperLink, ")
    assert said[0].endswith(
        f"at most (flower.patience): nothing listens at {closed}: is the coordinator's `fedrl "
        "flower link` running, and is this its port?"
    )
    assert str(end.value).startswith(
        f"no SuperLink within 1.5 s (flower.patience): nothing listens at {closed}: is "
    )


def test_a_connection_that_nobody_wrote_says_who_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(UserError, match=r"`fedrl flower link --name hub` writes one"):
        find("hub")
    save("other", Connection("x:1"))
    with pytest.raises(UserError, match=r"choose from other, or `fedrl flower link --name hub`"):
        find("hub")


def test_a_name_that_this_machine_does_not_know_is_told():
    with pytest.raises(Lost, match=r"this machine knows no nowhere\.invalid"):
        wait_for(Connection("nowhere.invalid:9092"), 0.0, lambda line: None)


def test_a_port_of_something_else_is_told(tmp_path: Path):
    keys.make_server(tmp_path / "hub", ["localhost"])

    def hello() -> None:
        while True:
            try:
                line, _ = other.accept()
            except OSError:  # closed: the test is over
                return
            line.sendall(b"220 mail.example ESMTP\r\n")
            line.close()

    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=hello, daemon=True).start()
        here = Connection(f"localhost:{other.getsockname()[1]}", str(tmp_path / "hub" / "ca.pem"))
        with pytest.raises(Lost, match=r"speaks no TLS|ended the connection"):
            wait_for(here, 0.0, lambda line: None)


def test_while_somebody_elses_call_waits_it_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver_waiting, "FIRST_SECONDS", 0.01)
    heard = threading.Event()
    with driver_waiting.said_if_slow("waiting for the SuperLink", lambda line: heard.set()):
        assert heard.wait(60)
