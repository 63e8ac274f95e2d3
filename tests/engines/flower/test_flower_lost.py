"""What Flower loses or repeats: nobody is waited for for ever, forgotten, or allowed too much."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState
from support.flower_nodes import Net
from support.toy import Toy

from fedrl.core.types import Failure, Job, Result, UserError
from fedrl.engines.flower import node_executor
from fedrl.engines.flower.adapter import node as adapter_node
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.adapter.driver import Run
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.node import NodeClient
from fedrl.engines.flower.node_plan import Plan
from fedrl.engines.flower.superlink_client import Arrived, Outgoing, SuperLinkClient, _Arriving

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core

CLIENTS = 3


def jobs() -> list[Job]:
    toy = Toy(CLIENTS)
    sent = toy.broadcast(toy.init(0), 1)
    return [Job(client, sent, None, 7 + client) for client in range(CLIENTS)]


class Busy(Net):
    """Node 101 lets questions who it is expire, so many times."""

    times = 1

    def pull(self, wanted: Any, limit: int) -> list[Arrived]:
        first = sorted(wanted, key=lambda m: m in self.answers and self.answers[m].node != 101)
        found = super().pull(first, limit)  # the last one: node 101 keeps nobody from answering
        about_names = found and '"kind": "name"' in records.opened(found[0].content)[0]
        if about_names and found[0].node == 101 and self.times:
            self.times -= 1
            return [found[0]._replace(content=None, error="expired")]
        return found


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.01)
    return Busy(Toy(CLIENTS), tmp_path, CLIENTS)


@pytest.fixture
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages can only be made by somebody who has one of its tasks."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def test_a_node_that_is_too_busy_to_say_its_name_is_asked_again(net: Busy):
    said: list[str] = []
    assert [type(o) for o in net.engine(said.append).run(jobs())] == [Result] * CLIENTS
    assert said == ["node 101 does not say who it is: expired"]


def test_one_that_never_says_it_is_asked_once_a_round(net: Busy):
    net.times = 10**9
    engine = net.engine(lambda line: None, wait=0.2)
    for _ in range(3):
        before = net.times
        assert [type(o) for o in engine.run(jobs())] == [Result, Failure, Result]
    assert before - net.times == 1  # in the first round it was asked for as long as one waits


def test_a_message_whose_run_has_ended_does_not_stop_a_node(monkeypatch: pytest.MonkeyPatch):
    """A SuperNode leaves the task of such a message behind, and never has all of it."""
    tasks = ["left behind", "the next one"]
    done: list[str] = []
    ends: list[tuple[str, str]] = []

    def acquire(_: Any) -> Any:
        return SimpleNamespace(token=tasks.pop(0) if tasks else "")

    def pull_task_input(runtime: Any) -> Any:
        token = runtime.token
        if not runtime.PullObject(None).object_available:
            raise AssertionError("it would be waited for")
        return SimpleNamespace(content=token), None, None, None

    def to(address: str, interceptor: Any) -> Any:
        token = interceptor if isinstance(interceptor, str) else ""
        found = SimpleNamespace(object_found=True, object_available=token == "the next one")
        return SimpleNamespace(
            token=token,
            AcquireTask=acquire,
            PullObject=lambda _: found,
            PushTaskOutput=lambda request: ends.append((token, request.sub_status)),
            close=lambda: None,
        )

    monkeypatch.setattr(adapter_node, "_to", to)
    monkeypatch.setattr(adapter_node, "RuntimeTokenHttpInterceptor", lambda token: token)
    monkeypatch.setattr(adapter_node, "pull_task_input", pull_task_input)
    monkeypatch.setattr(adapter_node, "Message", lambda content, reply_to: content)
    monkeypatch.setattr(
        adapter_node, "push_message", lambda runtime, told, context: done.append(told)
    )
    client: Any = SimpleNamespace(answer=lambda content: content, sent=0)
    node_executor.serve(client, "x:1", b"secret", lambda: not done)
    assert done == ["the next one"]
    assert ends == [("left behind", "failed"), ("the next one", "completed")]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.usefixtures("in_a_task")
def test_the_end_of_a_task_that_is_given_up_has_to_be_told(told: bool):
    """Else Flower answers for it a minute later, when another message waits for its answer."""
    state = InMemoryNodeState(ObjectStoreFactory().store())
    message = Message(records.content("x"), dst_node_id=1, message_type="query")
    message.metadata.__dict__["_message_id"] = message.object_id
    task = state.create_task(TaskType.CLIENT_APP, 1)
    assert task is not None
    assert state.claim_task(task)
    assert state.activate_task(task)
    state.store_message(message)
    assert len(state.get_messages_legacy(is_reply=False)) == 1
    if told:
        assert state.finish_task(task, SubStatus.FAILED, "")
    for record in state.task_token_store.values():
        record.active_until = datetime.fromtimestamp(0, UTC)
    assert len(state.get_messages_legacy(is_reply=True)) == (not told)


class OnlyTask:
    """A SuperNode that always has a task, and stands for the connections to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.acquired = self.closed = 0
        monkeypatch.setattr(adapter_node, "_to", lambda *_: self)

    def AcquireTask(self, _: Any) -> Any:
        self.acquired += 1
        return SimpleNamespace(token="one")

    def close(self) -> None:
        self.closed += 1


def looks(times: int) -> Callable[[], bool]:
    """A SuperNode that is alive for so many looks: who goes on after its end is found out."""
    left = iter([True] * times)
    return lambda: next(left, False)


def test_an_error_of_flower_ends_a_supernode_and_not_its_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """It might wait for the rest of an answer for ever."""
    supernode = OnlyTask(monkeypatch)
    monkeypatch.setattr(adapter_node, "pull_task_input", lambda _: 1 / 0)
    alive = looks(5)
    node_executor.serve(SimpleNamespace(), "x:1", b"secret", alive)  # type: ignore[arg-type]
    assert supernode.acquired == 1  # the task is not tried again at the same SuperNode
    assert supernode.closed == 2  # the task's connection and the SuperNode's: nothing is left open
    assert alive()  # it ended by itself, while the SuperNode was there
    assert "a message was given up (ZeroDivisionError)" in capsys.readouterr().err


def test_a_job_ends_with_the_supernode_that_is_to_carry_its_answer(
    monkeypatch: pytest.MonkeyPatch,
):
    """Its successor comes after the job, which may take longer than a driver waits for a node."""
    OnlyTask(monkeypatch)
    monkeypatch.setattr(node_executor, "WATCH_SECONDS", 0.01)
    message = SimpleNamespace(content=None)
    monkeypatch.setattr(adapter_node, "pull_task_input", lambda _: (message, None, None, None))
    monkeypatch.setattr(adapter_node, "Message", lambda content, reply_to: content)
    monkeypatch.setattr(adapter_node, "push_message", lambda *_: 1 / 0)  # nobody is there
    stopped, alive = threading.Event(), [True]

    def answer(_: Any) -> None:
        alive[0] = False  # the SuperNode is killed while this works
        assert stopped.wait(10.0)

    busy = iter([False, False, True])  # twice its worker has not even been given the job

    def interrupt() -> bool:
        if found := next(busy):
            stopped.set()
        return found

    client: Any = SimpleNamespace(answer=answer, interrupt=interrupt)
    node_executor.serve(client, "x:1", b"secret", lambda: alive[0])
    assert stopped.is_set()


@pytest.mark.parametrize(
    "error, tries", [(httpx.ReadTimeout(""), 1), (OSError(), 1), (httpx.ConnectError(""), 5)]
)
def test_an_acquired_task_whose_token_is_lost_ends_the_supernode(
    error: Exception, tries: int, monkeypatch: pytest.MonkeyPatch
):
    """Nobody would ever do it. One that was not even reached has given no task: try again."""
    supernode = OnlyTask(monkeypatch)

    def acquire(_: Any) -> None:
        supernode.acquired += 1
        raise error

    monkeypatch.setattr(supernode, "AcquireTask", acquire)
    monkeypatch.setattr(
        node_executor, "time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    )
    alive = looks(5)
    node_executor.serve(SimpleNamespace(), "x:1", b"secret", alive)  # type: ignore[arg-type]
    assert (supernode.acquired, supernode.closed) == (tries, 1)
    assert alive() == (tries == 1)


class Hangs(Toy):
    def __init__(self, begun: Path) -> None:
        super().__init__(CLIENTS)
        self.begun = begun

    def local(self, job: Job) -> Result:
        self.begun.touch()
        time.sleep(600)
        return super().local(job)


@pytest.mark.slow
def test_a_job_that_is_interrupted_has_failed_and_the_next_one_is_done(tmp_path: Path):
    begun = tmp_path / "begun"
    recipes = {"hangs": partial(Hangs, begun), "works": partial(Toy, CLIENTS)}
    plan = lambda recipe: Plan(recipes[recipe], "float32", 100, True)  # noqa: E731
    client = NodeClient(0, tmp_path, plan, log=lambda line: None)
    job = jobs()[0]
    with closing(client):
        threading.Thread(target=interrupt_once, args=(client, begun)).start()
        failed = client._compute(plan("hangs"), "hangs", job, 0.0)
        assert isinstance(failed, Failure)
        client.interrupt()  # with nothing under way
        assert isinstance(client._compute(plan("works"), "works", job, 0.0), Result)
        client.interrupt()
        assert isinstance(client._compute(plan("works"), "works", job, 0.0), Result)


def interrupt_once(client: NodeClient, begun: Path) -> None:
    """When its job is under way, however long its worker takes to start."""
    while not begun.exists():
        time.sleep(0.01)
    client.interrupt()


def fails_once(path: Path) -> Toy:
    if not path.exists():
        path.touch()
        raise UserError("no data yet")
    return Toy(CLIENTS)


@pytest.mark.slow
def test_a_worker_that_did_not_start_is_started_again(tmp_path: Path):
    plan = Plan(partial(fails_once, tmp_path / "there"), "float32", 100, True)
    with closing(NodeClient(0, tmp_path, lambda recipe: plan, log=lambda line: None)) as client:
        with pytest.raises(UserError, match="no data yet"):
            client._compute(plan, "", jobs()[0], 0.0)
        assert isinstance(client._compute(plan, "", jobs()[0], 0.0), Result)


def test_updates_with_noise_of_their_own_are_not_asked_for_twice(net: Busy):
    net.times = 0
    net.lost = ["pull"]  # while nodes say who they are: no job is out
    engine = net.engine(lambda line: None, once=True)
    assert [type(o) for o in engine.run(jobs())] == [Result] * CLIENTS
    net.lost = ["pull"]
    outcomes = list(engine.run(jobs()))
    assert [type(o) for o in outcomes] == [Failure] * CLIENTS
    assert outcomes[0].reason.endswith("is not asked for twice")
    assert len(net.sent) == 2 * CLIENTS
    assert [type(o) for o in engine.run(jobs())] == [Result] * CLIENTS


def test_a_superlink_that_is_lost_again_and_again_stops_the_run(net: Busy):
    net.times = 0
    net.lost = ["pull"] * 100
    with pytest.raises(UserError, match="more than 20 times without an answer in between"):
        list(net.engine(lambda line: None).run(jobs()))


def test_who_takes_anothers_number_later_stops_no_run(net: Busy):
    net.times = 0
    said: list[str] = []
    engine = net.engine(said.append, wait=0.2)
    list(engine.run(jobs()))
    net.members[300] = net.members[101]
    assert [type(o) for o in engine.run(jobs())] == [Result] * CLIENTS
    assert said == ["node 300 is left out: it says that it is client 1, as node 101 does"]
    del net.members[101]  # and when the other one is gone, it is this one's turn
    assert [type(o) for o in engine.run(jobs())] == [Result] * CLIENTS
    assert engine.owners[1] == 300


@pytest.mark.parametrize(
    "times, error", [(3, ""), (40, "its answer is larger than the 4,000 bytes")]
)
@pytest.mark.usefixtures("in_a_task")
def test_equal_pieces_count_as_often_as_they_are_named(times: int, error: str):
    """Flower carries them once, so that a small message could become any number of bytes."""
    content = records.content("x", records.body([bytes(1000)] * times))
    message = Message(content, dst_node_id=1, message_type="query")
    objects = {i: o.deflate() for i, o in get_all_nested_objects(message).items()}
    assert sum(map(len, objects.values())) < 8000
    limit = 8000 if not error else 4000
    ids = list(objects)

    def pull(request: Any) -> Any:
        content = objects[request.object_id]
        return SimpleNamespace(object_found=True, object_available=True, object_content=content)

    run = Run(SimpleNamespace(PullObject=pull), SimpleNamespace(node=None), 1)
    link = SuperLinkClient(Connection("x:1"), run)
    arrived = link._fetch(message.object_id, _Arriving("m1", 101, ids), limit)
    assert arrived is not None
    assert arrived.error.startswith(error)
    assert (arrived.content is None) == bool(error)


class Store:
    """A SuperLink that has answers to some messages; what is confirmed is deleted."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.deleted, self.fetched = answers, list[str](), 0

    def PullMessages(self, request: Any) -> Any:
        found = [(m, self.answers.pop(m)) for m in sorted(request.message_ids) if m in self.answers]
        about = [
            SimpleNamespace(message_id=n, reply_to_message_id=m, src_node_id=1) for m, n in found
        ]
        return SimpleNamespace(
            messages_list=[SimpleNamespace(metadata=one) for one in about],
            message_object_trees=[SimpleNamespace(object_id=n, children=[]) for _, n in found],
        )

    def PullObject(self, request: Any) -> Any:
        self.fetched += 1
        return SimpleNamespace(object_found=True, object_available=False)

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.deleted.append(request.message_object_id)


def linked(store: Store) -> SuperLinkClient:
    return SuperLinkClient(Connection("x:1"), Run(store, SimpleNamespace(node=None), 1))


def test_an_answer_that_comes_too_late_does_not_stay_at_the_superlink():
    store = Store({})
    link = linked(store)
    assert link.pull(["m1", "m2"], 1000) == []
    link.forget(["m1"])
    store.answers = {"m1": "late", "m2": "in time"}
    assert link.pull(["m2"], 1000) == []  # on its way
    assert store.deleted == ["late"]
    link.forget(["m2"])
    assert store.deleted == ["late", "in time"]
    fetched = store.fetched
    assert link.pull([], 1000) == []
    assert store.fetched == fetched == 1


def test_an_answer_in_a_million_parts_is_not_fetched():
    store = Store({})
    parts = [str(number) for number in range(1000)]
    arrived = linked(store)._fetch("n", _Arriving("m", 1, parts), 4000)
    assert arrived is not None
    assert arrived.error == "its answer has too many parts"
    assert store.fetched == 0


def test_a_request_that_is_refused_as_a_whole_has_taken_no_message():
    link = linked(Store({}))
    link._run.grid = SimpleNamespace(push_messages=lambda made: [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedrl.engines.flower.adapter.driver.Message", lambda *_, **__: None)
        assert link.push([Outgoing(1, records.content("x"), 1.0)]) == [""]


def test_a_number_that_is_taken_twice_stops_no_run_after_its_first_meeting(net: Busy):
    """Whether somebody was absent from the start, or the SuperLink was restarted since."""
    net.times = 0
    absent = net.members.pop(102)
    engine = net.engine(lambda line: None, wait=0.1)
    assert [type(o) for o in engine.run(jobs())] == [Result, Result, Failure]
    net.members[300] = net.members[101]
    assert [type(o) for o in engine.run(jobs())] == [Result, Result, Failure]
    net.lost = ["pull"]
    net.members[102] = absent
    assert [type(o) for o in engine.run(jobs())] == [Result] * CLIENTS
