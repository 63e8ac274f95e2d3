"""Buffered rounds on real clients: who is slow holds nobody up, who fails is asked again.

Events decide, not clocks: the slow client answers when the server has made so many steps.
"""

from __future__ import annotations

import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from support.toy import Toy

from fedrl.aggregation import mean as aggregate
from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.core.types import Failure, Job, Result
from fedrl.engines.worker_pool import WorkerPool
from fedrl.federation import client_sampling, round_loop
from fedrl.federation.async_buffer import AsyncBuffer
from fedrl.federation.async_settings import Settings

CLIENTS = 3


class Blocked(Toy):
    """Client 0 does not answer before a file is there, and another one not from then on."""

    def __init__(self, file: Path, then: int = -1) -> None:
        super().__init__(CLIENTS)
        self.file, self.then = file, then

    def local(self, job: Job) -> Result:
        there = self.file.exists
        while (job.client == 0 and not there()) or (job.client == self.then and there()):
            time.sleep(0.01)
        return super().local(job)


class Memory:
    def __init__(self):
        self.rounds, self.last = [], None

    def load(self):
        return self.last

    def log(self, done):
        self.rounds.append(done)

    def log_clients(self, records):
        self.rounds[-1].clients.extend(records)

    def checkpoint(self, snapshot):
        self.last = snapshot


def train(engine, rounds, free, free_at=-1, store=None, size=2, **fields):
    """A run in which `free()` is called after round `free_at`."""
    store = store or Memory()
    round_loop.run(
        client_sampling.Settings(clients=CLIENTS, **fields), Toy(CLIENTS), engine,
        aggregate.mean, store,
        seed=3, rounds=rounds, warn=lambda line: None,
        observers=[lambda done: free() if done.round == free_at else None],
        exchange=AsyncBuffer(Settings(size=size), engine),
    )  # fmt: skip
    return store


def used(done):
    return [(r["client"], r["staleness"]) for r in done.clients if r["status"] == "ok"]


def failed(done):
    return {r["client"]: r["reason"] for r in done.clients if r["status"] == "failed"}


def the_slow_one_came_late(store, free_at):
    """A synchronous run would never have ended its first round."""
    for done in store.rounds[1 : free_at + 1]:
        assert sorted(used(done)) == [(1, 0), (2, 0)]
    later = [one for done in store.rounds[free_at + 1 :] for one in used(done)]
    assert next(tau for client, tau in later if client == 0) >= free_at
    assert len(later) == 2 * (len(store.rounds) - free_at - 1)
    assert store.last.clients.keys() == {0, 1, 2}
    assert store.last.under_way == ()
    assert store.rounds[-1].metrics["async/time"] > 0


@pytest.mark.slow
def test_a_slow_client_does_not_set_the_pace_of_workers(tmp_path):
    file = tmp_path / "go"
    with WorkerPool(partial(Blocked, file, then=1), 3) as engine:
        store = train(engine, 9, file.touch, free_at=5)
    the_slow_one_came_late(store, 5)


@pytest.mark.slow
def test_with_fewer_workers_than_clients_all_get_their_turn(tmp_path):
    (tmp_path / "go").touch()
    with WorkerPool(partial(Blocked, tmp_path / "go"), 1) as engine:
        store = train(engine, 6, lambda: None)
    assert {client for done in store.rounds for client, _ in used(done)} == {0, 1, 2}


def jobs(*clients):
    toy = Toy(CLIENTS)
    sent = toy.broadcast(toy.init(0), 1)
    return [Job(client, sent, None, 7 + client) for client in clients]


def test_no_worker_is_idle_while_the_server_makes_use_of_an_outcome():
    with WorkerPool(partial(Toy, CLIENTS), 1) as engine:
        engine.submit(jobs(0, 1, 2))
        for left in (True, True, False):
            engine.next_outcome()
            assert (engine._workers[0].job is not None) == left


def faulty(kind: str) -> Faulty:
    return Faulty(Toy(CLIENTS), Faults(clients=(0, 1), kind=kind))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "deadline", "reason"),
    [
        ("hang", 1.0, "no answer within the deadline of 1 s"),
        ("exit", 0.0, "its process died (exit code 3)"),
    ],
)
def test_hung_and_dead_workers_are_recorded_and_asked_again(kind, deadline, reason):
    with WorkerPool(partial(faulty, kind), 3) as engine:
        store = train(engine, 2, lambda: None, deadline=deadline, retries=0)
    for done in store.rounds[1:]:
        assert failed(done) == {0: reason, 1: reason}
        assert used(done) == [(2, 0)]


@pytest.mark.slow
def test_with_nobody_left_the_run_stops_and_says_why():
    with (
        WorkerPool(partial(faulty, "raise"), 1) as engine,
        pytest.raises(round_loop.QuorumLost, match=r"the buffer has 1 of 3 .*client 0, 1: Runtime"),
    ):
        train(engine, 2, lambda: None, size=3, retries=1)


# Flower ------------------------------------------------------------------------------------------


@pytest.fixture
def net(tmp_path, monkeypatch):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from support.flower_nodes import Net

    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.001)
    return Net(Toy(CLIENTS), tmp_path, CLIENTS)


def withhold(net, node, then=0):
    """Answers of this node wait until they are let go; then those of another one are lost."""
    held = []
    net.spoil = lambda answer: held.append(answer) if answer.node == node else answer

    def free():
        net.spoil = lambda answer: None if answer.node == then else answer
        net.answers |= {answer.message: answer for answer in held}

    return free


def test_a_slow_node_does_not_set_the_pace(net):
    store = train(net.engine(), 9, withhold(net, 100, then=102), free_at=5)
    the_slow_one_came_late(store, 5)


@pytest.mark.slow
def test_a_node_past_its_deadline_is_recorded_and_asked_again(net):
    withhold(net, 100)
    store = train(net.engine(), 2, lambda: None, size=3, retries=1, deadline=0.2)
    for done in store.rounds[1:]:
        assert failed(done) == {0: "no answer within the deadline of 0.2 s"}
        assert [r.get("attempt", 1) for r in done.clients if r["client"] == 0] == [1, 2]


def test_a_client_without_a_node_is_recorded_and_the_others_go_on(net):
    del net.members[101]
    store = train(net.engine(), 3, lambda: None)
    for done in store.rounds[1:]:
        assert set(failed(done).values()) <= {"no node of this client is connected"}
        assert sorted(used(done)) == [(0, 0), (2, 0)]


@pytest.mark.parametrize("call", ["push", "pull"])
def test_a_superlink_that_went_away_gets_the_jobs_without_an_answer_again(net, call):
    whole = train(net.engine(), 4, lambda: None, size=3)
    before = net.links
    net.lost = [call]
    again = train(net.engine(lambda line: None), 4, lambda: None, size=3)
    assert net.links == before + 2
    assert [sorted(used(done)) for done in again.rounds] == [
        sorted(used(done)) for done in whole.rounds
    ]


def test_a_resumed_run_starts_from_the_states_on_the_nodes(net):
    whole = train(net.engine(), 4, lambda: None, size=3)
    store = train(net.engine(), 2, lambda: None, size=3)
    train(net.engine(), 4, lambda: None, size=3, store=store)
    seen = [[done.metrics.get("train/seen") for done in s.rounds] for s in (whole, store)]
    assert seen[0] == seen[1]


class Clock:
    """Time that passes by naps, and when a test says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.nap)

    def nap(self, seconds):
        self.now += 1.0


def forgetful(net, clock, monkeypatch):
    """As a SuperLink: no answer is given out once the time of its question is over."""
    from fedrl.engines.flower.superlink_client import Arrived

    ends, push, pull = {}, net.push, net.pull

    def keep(messages):
        numbers = push(messages)
        ends.update((n, clock.now + m.seconds) for n, m in zip(numbers, messages, strict=True))
        return numbers

    def give(messages, limit):
        over = [n for n in messages if clock.now > ends[n]]
        for number in over:
            net.answers.pop(number, None)
        return [Arrived(n, 0, None, "unavailable") for n in over] or pull(messages, limit)

    monkeypatch.setattr(net, "push", keep)
    monkeypatch.setattr(net, "pull", give)


def test_an_answer_counts_if_it_is_there_however_long_the_driver_was_busy(net, monkeypatch):
    clock = Clock(monkeypatch)
    forgetful(net, clock, monkeypatch)
    engine = net.engine()
    engine.submit(jobs(0, 1, 2))
    found = [engine.next_outcome(10.0)]
    clock.now += 600.0  # an evaluation
    found += [engine.next_outcome(10.0), engine.next_outcome(10.0)]
    assert sorted(client for client, _ in found) == [0, 1, 2]
    assert [type(outcome) for _, outcome in found] == [Result] * 3


def test_who_has_no_answer_then_is_late(net, monkeypatch):
    clock = Clock(monkeypatch)
    forgetful(net, clock, monkeypatch)
    withhold(net, 101)
    engine = net.engine()
    engine.submit(jobs(0, 1, 2))
    found = dict(engine.next_outcome(10.0) for _ in range(3))
    assert found[1] == Failure(1, "no answer within the deadline of 10 s")
    assert 10.0 <= clock.now < 15.0


@pytest.mark.parametrize("comes", [True, False])
def test_a_node_that_is_waited_for_holds_nobody_up(net, monkeypatch, comes):
    clock = Clock(monkeypatch)
    late = net.members.pop(101)
    engine = net.engine(wait=100.0)
    engine.submit(jobs(0, 1, 2))
    assert {engine.next_outcome()[0], engine.next_outcome()[0]} == {0, 2}
    assert clock.now < 100.0
    if comes:
        net.members[205] = late
    client, outcome = engine.next_outcome()
    assert (client, type(outcome)) == (1, Result if comes else Failure)
    assert (clock.now >= 100.0) != comes


def test_after_a_lost_superlink_nodes_have_their_time_again(net, monkeypatch):
    clock, members = Clock(monkeypatch), dict(net.members)
    withhold(net, 101)
    engine = net.engine(lambda line: None, wait=100.0)
    engine.submit(jobs(1))

    def nap(seconds):
        clock.now += 1.0
        if clock.now == 150.0:
            net.lost = ["pull"]
            net.members.clear()
        if clock.now == 200.0:
            net.spoil = lambda answer: answer
            net.members.update(members)

    monkeypatch.setattr(time, "sleep", nap)
    assert type(engine.next_outcome()[1]) is Result
    assert net.links == 2


@pytest.mark.parametrize("lost", [[], ["push"]])
def test_new_jobs_are_sent_while_outcomes_wait(net, monkeypatch, lost):
    """All answers come at once: who begins again must not wait until all of them are used."""

    def pull_all(messages, limit):
        return [net.answers.pop(m) for m in list(messages) if m in net.answers]

    monkeypatch.setattr(net, "pull", pull_all)
    engine = net.engine(lambda line: None)
    engine.submit(jobs(0, 1, 2))
    first, _ = engine.next_outcome()
    engine.submit(jobs(first))
    net.lost = list(lost)
    found = [engine.next_outcome()]
    assert len(net.sent) == 4
    assert net.links == 1 + len(lost)
    found += [engine.next_outcome(), engine.next_outcome()]
    assert sorted([first, *(client for client, _ in found)]) == sorted([0, 1, 2, first])
    assert [type(outcome) for _, outcome in found] == [Result] * 3


@pytest.mark.machines
@pytest.mark.xdist_group("flower machines")
def test_a_stopped_node_does_not_set_the_pace_of_real_processes(tmp_path, monkeypatch):
    """One node is stopped while the others make four steps; then it goes on, and another stops."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    from support.flower_runs import QUICK, on_flower, records, rounds_of

    from fedrl.engines.flower.connection import FOLDER
    from fedrl.engines.flower.local_federation import LocalFederation

    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    pavg = {"algorithm": {"name": "pavg", "local_steps": 4}, "world": {"name": "random_mdp"}}
    with LocalFederation(tmp_path / "up", CLIENTS, name="test", program=QUICK) as up:
        log = "test/pavg-*/metrics.jsonl"
        events = [(1, 0, signal.SIGSTOP), (5, 1, signal.SIGSTOP), (5, 0, signal.SIGCONT)]

        def disturb() -> None:
            for number, client, what in events:
                while not any(f.read_text().count("\n") > number for f in tmp_path.glob(log)):
                    time.sleep(0.05)
                up.nodes[client].send_signal(what)

        thread = threading.Thread(target=disturb)
        thread.start()
        run = on_flower(pavg, tmp_path, "--async_buffer.size", "2", rounds=10)
        thread.join()
        up.nodes[1].send_signal(signal.SIGCONT)
    assert rounds_of(run) == list(range(11))
    late = [r for r in records(run) if r["client"] == 0 and r["round"] > 5 and r["status"] == "ok"]
    assert late[0]["staleness"] >= 2
    assert all(r["status"] == "ok" for r in records(run))
