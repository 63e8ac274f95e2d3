"""The engine against nodes in this process: the same numbers, and every kind of wrong answer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

flwr = pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import Array, ArrayRecord, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from support.flower_nodes import Net
from support.toy import Toy

from fedrl.aggregation import mean as aggregate
from fedrl.core import serialization, tree
from fedrl.core.types import Failure, Job, Result, UserError
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.adapter.driver import Run
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.engine import FlowerEngine
from fedrl.engines.flower.superlink_client import Arrived, SuperLinkClient, _Arriving
from fedrl.engines.in_process import InProcess
from fedrl.federation import round_loop
from fedrl.federation.client_sampling import Settings

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core

CLIENTS = 3


class Memory:
    """A store that keeps what it is given."""

    def __init__(self) -> None:
        self.snapshot: round_loop.Snapshot | None = None
        self.rounds: list[round_loop.Round] = []

    def load(self) -> round_loop.Snapshot | None:
        return self.snapshot

    def log(self, done: round_loop.Round) -> None:
        self.rounds.append(done)

    def log_clients(self, records: list[dict]) -> None: ...

    def checkpoint(self, snapshot: round_loop.Snapshot) -> None:
        self.snapshot = snapshot


def train(engine: round_loop.Engine, rounds: int = 4, store: Memory | None = None) -> Memory:
    store = store or Memory()
    settings = Settings(clients=CLIENTS)
    toy, rule = Toy(CLIENTS), aggregate.weighted
    round_loop.run(settings, toy, engine, rule, store, seed=5, rounds=rounds, warn=lambda _: None)
    return store


def same(a: Memory, b: Memory) -> None:
    assert a.snapshot is not None
    assert b.snapshot is not None
    for x, y in zip(a.snapshot.states, b.snapshot.states, strict=True):
        fx, fy = tree.flatten(x), tree.flatten(y)
        assert fx.keys() == fy.keys()
        assert all(np.asarray(fx[k]).tobytes() == np.asarray(fy[k]).tobytes() for k in fx)
    assert [r.metrics for r in a.rounds] == [r.metrics for r in b.rounds]
    assert [r.clients for r in a.rounds] == [r.clients for r in b.rounds]


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.01)
    return Net(Toy(CLIENTS), tmp_path, CLIENTS)


def jobs(net: Net) -> list[Job]:
    sent = Toy(CLIENTS).broadcast(Toy(CLIENTS).init(0), 1)
    return [Job(client, sent, None, 7 + client) for client in range(CLIENTS)]


def test_rounds_are_those_of_the_inprocess_engine(net: Net):
    same(train(net.engine()), train(InProcess(Toy(CLIENTS))))


def test_states_stay_on_the_nodes_and_the_server_has_only_names(net: Net, tmp_path: Path):
    store = train(net.engine(), rounds=3)
    assert store.snapshot is not None
    assert set(store.snapshot.clients) == set(range(CLIENTS))
    for client, state in store.snapshot.clients.items():
        (tag,) = state.values()
        files = {path.stem for path in (tmp_path / str(client)).rglob("*.safetensors")}
        assert tag in files
        assert len(files) == 3
    assert store.rounds[-1].metrics["train/seen"] == 2.0  # the state went on from round to round


def test_a_resumed_run_starts_from_the_states_of_its_checkpoint(net: Net):
    whole = train(net.engine(), rounds=4)
    store = train(net.engine(), rounds=2)
    ahead = Memory()
    ahead.snapshot = store.snapshot
    train(net.engine(), rounds=3, store=ahead)  # this round's checkpoint is then lost
    again = train(net.engine(), rounds=4, store=store)
    assert [r.metrics for r in again.rounds] == [r.metrics for r in whole.rounds]


def test_a_run_with_states_in_its_checkpoint_is_refused(net: Net):
    (job, *_) = jobs(net)
    with pytest.raises(UserError, match="checkpoint"):
        list(net.engine().run([replace(job, state={"seen": np.array(1)})]))


def test_a_state_that_is_gone_is_a_failure_with_a_reason(net: Net):
    (job, *_) = jobs(net)
    (outcome,) = net.engine().run([replace(job, state={"kept": "gone"})])
    assert isinstance(outcome, Failure)
    assert "not on its disk" in outcome.reason


def outcomes(net: Net, deadline: float = 0.0) -> list[Result | Failure]:
    return list(net.engine().run(jobs(net), deadline))


def of_client_one(change: Callable[[Arrived], Arrived | None]) -> Callable:
    """Spoils the answer of client 1, which is the middle one in the order of jobs."""
    return lambda answer: change(answer) if answer.node == 101 else answer


def only_one_failed(found: list[Result | Failure]) -> str:
    assert [o.client for o in found] == [0, 1, 2]
    assert [type(o) for o in found] == [Result, Failure, Result]
    assert isinstance(found[1], Failure)
    return found[1].reason


def test_no_answer_is_a_failure_at_the_deadline_and_holds_nobody_up(net: Net):
    net.spoil = of_client_one(lambda answer: None)
    assert only_one_failed(outcomes(net, 0.3)) == "no answer within the deadline of 0.3 s"


def test_an_error_of_flower_is_a_failure(net: Net):
    net.spoil = of_client_one(lambda answer: answer._replace(content=None, error="gone"))
    assert only_one_failed(outcomes(net)) == "gone"


def test_an_old_answer_sent_again_is_refused(net: Net):
    old: list[Arrived] = []
    net.spoil = of_client_one(lambda answer: old.append(answer) or answer)
    outcomes(net)
    net.spoil = of_client_one(lambda answer: answer._replace(content=old[0].content))
    assert "sent again" in only_one_failed(outcomes(net))


def test_a_node_cannot_answer_for_another(net: Net):
    net.spoil = of_client_one(lambda answer: answer._replace(node=102))
    assert "another question" in only_one_failed(outcomes(net))


def edited(change: Callable[[dict], dict]) -> Callable[[Arrived], Arrived]:
    import json

    def edit(answer: Arrived) -> Arrived:
        assert answer.content is not None
        text, pieces = records.opened(answer.content)
        text = json.dumps(change(json.loads(text)))
        return answer._replace(content=records.content(text, records.body(pieces)))

    return edit


def test_a_changed_checksum_is_malformed(net: Net):
    net.spoil = of_client_one(edited(lambda head: head | {"digest": "0" * 64}))
    assert "checksum" in only_one_failed(outcomes(net))


def test_a_heading_of_another_kind_is_malformed(net: Net):
    net.spoil = of_client_one(edited(lambda head: head | {"more": 1}))
    assert "malformed" in only_one_failed(outcomes(net))


def test_an_archive_that_is_none_is_malformed(net: Net):
    def garbage(answer: Arrived) -> Arrived:
        assert answer.content is not None
        head = messages.from_json(records.opened(answer.content)[0], messages.Answer)
        head = replace(head, digest=serialization.checksum([b"garbage"]))
        body = records.body([b"garbage"])
        return answer._replace(content=records.content(messages.to_json(head), body))

    net.spoil = of_client_one(garbage)
    assert "not an archive" in only_one_failed(outcomes(net))


def test_arrays_that_flower_would_unpickle_or_parse_are_not_read(net: Net):
    def as_numpy(answer: Arrived) -> Arrived:
        assert answer.content is not None
        record = ArrayRecord({"0": Array(np.zeros(3))})
        return answer._replace(content=RecordDict({**answer.content, records.BODY: record}))

    net.spoil = of_client_one(as_numpy)
    assert "not bytes" in only_one_failed(outcomes(net))


def test_undeclared_names_are_refused_by_the_round_loop(net: Net):
    class Chatty(Toy):
        def local(self, job: Job) -> Result:
            result = super().local(job)
            if job.client == 1:
                result.update["secret"] = np.ones(2)
            return result

    honest, net.algorithm = net.algorithm, Chatty(CLIENTS)
    for node in net.members.values():
        plan = node.plan("")
        node.plan = lambda recipe, plan=plan: replace(plan, build=lambda: Chatty(CLIENTS))
    net.algorithm = honest
    store = train(net.engine(), rounds=1)
    (record,) = [r for r in store.rounds[-1].clients if r["client"] == 1]
    assert record["reason"] == "the update has secret, which the algorithm does not declare"


def test_what_a_client_raises_stays_with_it(net: Net):
    class Broken(Toy):
        def local(self, job: Job) -> Result:
            raise ValueError("the diary of Ada")

    for node in net.members.values():
        plan = node.plan("")
        node.plan = lambda recipe, plan=plan: replace(plan, build=lambda: Broken(CLIENTS))
    reasons = [o.reason for o in outcomes(net) if isinstance(o, Failure)]
    assert len(reasons) == CLIENTS
    assert not any("Ada" in reason for reason in reasons)


@pytest.mark.parametrize("lost", [["push"], ["pull"], ["push", "pull", "pull"]])
def test_a_superlink_that_goes_away_costs_nothing(net: Net, lost: list[str]):
    said: list[str] = []
    engine = net.engine(said.append)
    list(engine.run(jobs(net)))
    net.lost = list(lost)
    found = list(engine.run(jobs(net)))
    assert [type(o) for o in found] == [Result] * CLIENTS
    assert net.links == 1 + len(lost)
    assert len(said) == len(lost)


def test_a_client_without_a_node_fails_and_is_found_when_it_comes(net: Net):
    late = net.members.pop(101)
    engine = net.engine()
    assert only_one_failed(list(engine.run(jobs(net)))) == "no node of this client is connected"
    net.members[205] = late
    assert [type(o) for o in engine.run(jobs(net))] == [Result] * CLIENTS


def test_absent_clients_are_waited_for_once(net: Net, monkeypatch: pytest.MonkeyPatch):
    import fedrl.engines.flower.engine as module

    naps: list[float] = []
    monkeypatch.setattr(module.time, "sleep", naps.append)
    clock = iter(range(10_000))
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.1 * next(clock))
    del net.members[101]
    engine = net.engine(wait=5.0)
    list(engine.run(jobs(net)))
    first = len(naps)
    list(engine.run(jobs(net)))
    assert first > 10
    assert len(naps) - first < 10


def test_a_node_that_never_says_who_it_is_is_left_out(net: Net, monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda _: clock.__setitem__(0, clock[0] + 1.0))
    net.members[300] = SimpleNamespace(answer=lambda _: records.content("lost"))
    pull = net.pull
    monkeypatch.setattr(
        net,
        "pull",
        lambda wanted, limit: pull([m for m in wanted if net.answers[m].node != 300], limit),
    )
    said: list[str] = []
    del net.members[101]
    engine = net.engine(said.append, wait=100.0)
    only_one_failed(list(engine.run(jobs(net))))
    waited = [
        line for line in said if line.startswith("waiting for client 1: 1 of 3 nodes has not")
    ]
    assert "; one is connected and has not said which client's it is (1 s of" in waited[0]
    assert [line for line in said if line not in waited] == [
        "node 300 does not say who it is: no answer within 30 s",
        "no longer waiting for client 1, after 1 min 40 s: its node did not come",
    ]
    assert 100.0 <= clock[0] < 140.0  # it is asked again, but not beyond the wait
    only_one_failed(list(engine.run(jobs(net))))
    assert clock[0] < 180.0


def test_nodes_that_are_here_have_time_to_say_who_they_are(net: Net):
    assert [type(o) for o in net.engine(wait=0.0).run(jobs(net))] == [Result] * CLIENTS


def test_two_nodes_with_one_number_are_refused(net: Net):
    net.members[300] = net.members[101]
    with pytest.raises(UserError, match="say that they are client 1"):
        outcomes(net)


def test_a_node_with_another_version_is_left_out(net: Net, monkeypatch: pytest.MonkeyPatch):
    node = net.members[101]
    real = node.answer

    def outdated(content: RecordDict) -> RecordDict:
        text = records.opened(real(content))[0]
        name = messages.from_json(text, messages.Name)
        return records.content(messages.to_json(replace(name, version="0.0")))

    monkeypatch.setattr(node, "answer", outdated)
    said: list[str] = []
    only_one_failed(list(net.engine(said.append).run(jobs(net))))
    assert "it runs fedrl 0.0" in said[0]


def test_the_same_broadcast_is_stored_once_and_in_pieces(net: Net, monkeypatch):
    monkeypatch.setattr(records, "SMALL", 0)
    list(net.engine().run(jobs(net)))
    bodies = [message.content[records.BODY] for message in net.sent]
    assert len({id(body) for body in bodies}) == 1
    assert len(bodies[0]) > 3
    assert all(len(array.data) <= 100 for array in bodies[0].values())


@pytest.mark.parametrize(("precision", "off"), [("float16", 2**-11), ("bfloat16", 2**-8),
                                                ("int8", 1 / 127)])  # fmt: skip
def test_numbers_are_rounded_on_the_way(precision, off, tmp_path: Path):
    exact = outcomes(Net(Toy(CLIENTS), tmp_path / "a", CLIENTS))
    net = Net(Toy(CLIENTS), tmp_path / "b", CLIENTS, precision)
    rounded = list(net.engine(precision=precision).run(jobs(net)))
    for a, b in zip(exact, rounded, strict=True):
        assert isinstance(a, Result)
        assert isinstance(b, Result)
        assert b.update["b"].dtype == np.float32
        np.testing.assert_array_equal(a.update["a"], b.update["a"])  # double: as it was
        largest = np.abs(a.update["b"]).max()
        np.testing.assert_allclose(a.update["b"], b.update["b"], rtol=off, atol=off * largest)
        assert a.update["b"].tobytes() != b.update["b"].tobytes()


def test_a_node_does_only_its_own_jobs_and_each_once(net: Net):
    seen: list[messages.Answer] = []
    list(net.engine().run(jobs(net)))
    content = net.sent[1].content
    for node in (102, 101):
        answer = net.members[node].answer(content)
        seen.append(messages.from_json(records.opened(answer)[0], messages.Answer))
    assert seen[0].reason == "this node is client 2"
    assert seen[1].reason == "this job was done before"


def test_a_broken_job_is_answered_with_a_reason(net: Net):
    list(net.engine().run(jobs(net)))
    text, pieces = records.opened(net.sent[0].content)
    job = replace(messages.from_json(text, messages.Job), nonce="new")
    answer = net.members[100].answer(
        records.content(messages.to_json(job), records.body(pieces[1:]))
    )
    assert "checksum" in messages.from_json(records.opened(answer)[0], messages.Answer).reason


def test_the_limit_is_what_the_method_declares_and_little_more(net: Net):
    engine: FlowerEngine = net.engine()
    (job, *_) = jobs(net)
    declared = 3 * 8 + 4 * 4
    assert declared < engine._limit(job.broadcast) < declared + 2**20 + 2000


# What the driver fetches from a SuperLink --------------------------------------------------------


class Store:
    """The part of a SuperLink's interface that hands out objects."""

    def __init__(self, objects: dict[str, bytes | None]) -> None:
        self.objects = objects  # None: announced, but not there yet
        self.asked: list[str] = []

    def PullObject(self, request: Any) -> Any:
        self.asked.append(request.object_id)
        content = self.objects.get(request.object_id)
        return SimpleNamespace(
            object_found=request.object_id in self.objects,
            object_available=content is not None,
            object_content=content or b"",
        )

    def PullMessages(self, request: Any) -> Any:
        self.asked += sorted(request.message_ids)
        about = SimpleNamespace(message_id="a", reply_to_message_id="m1", src_node_id=101)
        tree = ObjectTree(object_id="a")
        found = "m1" in request.message_ids
        return SimpleNamespace(
            messages_list=[SimpleNamespace(metadata=about)] * found,
            message_object_trees=[tree] * found,
        )

    def ConfirmMessageReceived(self, request: Any) -> None: ...


def test_a_superlink_tells_of_an_answer_once():
    store = Store({"a": None})
    link = SuperLinkClient(Connection("x:1"), Run(store, SimpleNamespace(node=None), 1))
    assert link.pull(["m1", "m2"], 100) == []
    assert link.pull(["m1", "m2"], 100) == []
    assert store.asked == ["m1", "m2", "a", "m2", "a"]
    store.objects["a"] = b"x"
    assert [answer.message for answer in link.pull(["m1", "m2"], 100)] == ["m1"]


def test_an_answer_is_for_who_asked_for_it():
    """A job's answer may arrive while new nodes are asked for their names."""
    store = Store({"a": None})
    link = SuperLinkClient(Connection("x:1"), Run(store, SimpleNamespace(node=None), 1))
    assert link.pull(["m1"], 100) == []
    store.objects["a"] = b"x"
    assert link.pull(["m2"], 100) == []
    assert [answer.message for answer in link.pull(["m1"], 100)] == ["m1"]


def fetched(objects: dict[str, bytes | None], limit: int) -> tuple[Arrived | None, Store]:
    store = Store(objects)
    link = SuperLinkClient(Connection("x:1"), Run(store, SimpleNamespace(node=None), 1))
    return link._fetch("a", _Arriving("m1", 101, list("abc")), limit), store


def test_an_answer_over_the_limit_is_given_up_before_it_is_all_here():
    arrived, store = fetched({"a": b"x" * 60, "b": b"x" * 60, "c": b"x" * 10**6}, limit=100)
    assert arrived is not None
    assert arrived.content is None
    assert "larger than the 100 bytes" in arrived.error
    assert store.asked == ["a", "b"]


def test_an_answer_that_is_still_on_its_way_is_waited_for():
    assert fetched({"a": b"x", "b": None, "c": b"x"}, limit=100)[0] is None


def test_objects_that_make_no_message_are_malformed():
    arrived, _ = fetched({"a": b"x", "b": b"y", "c": pickle.dumps(print)}, limit=100)
    assert arrived is not None
    assert arrived.error == "its answer is malformed"


def test_an_answer_that_was_cut_off_is_a_failure():
    arrived, _ = fetched({"a": b"x"}, limit=100)
    assert arrived is not None
    assert arrived.error == "its answer was cut off"


CANARY = "the diary of Ada Lovelace"


def test_what_a_client_keeps_is_in_no_message(net: Net):
    class Diarist(Toy):
        def local(self, job: Job) -> Result:
            result = super().local(job)
            assert result.state is not None
            return replace(result, state=result.state | {"diary": CANARY})

    seen: list[bytes] = []

    def listen(answer: Arrived) -> Arrived:
        assert answer.content is not None
        text, pieces = records.opened(answer.content)
        seen.extend([text.encode(), b"".join(pieces)])
        return answer

    net.spoil = listen
    for node in net.members.values():
        plan = node.plan("")
        node.plan = lambda recipe, plan=plan: replace(plan, build=lambda: Diarist(CLIENTS))
    store = train(net.engine(), rounds=3)
    for message in net.sent:
        text, pieces = records.opened(message.content)
        seen.extend([text.encode(), b"".join(pieces)])
    assert len(seen) == 2 * 2 * 3 * CLIENTS
    assert not any(CANARY.encode() in part for part in seen)
    assert CANARY not in repr(store.snapshot)
    kept = [p for n in net.members.values() for p in n.folder.rglob("*.safetensors")]
    assert kept
    assert all(CANARY.encode() in path.read_bytes() for path in kept)
