"""Bodies that are never there as a whole: made, carried and taken piece by piece."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.supercore.task_identity import TaskIdentity

from fedrl.core import serialization
from fedrl.core.serialization import Damaged, Packed, Unpacker
from fedrl.engines.flower.adapter import records, supernode
from fedrl.engines.flower.adapter.arrived_answers import ArrivedAnswer
from fedrl.engines.flower.adapter.driver import Run
from fedrl.engines.flower.adapter.object_store import SMALLEST, SpooledObjectStore
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.superlink_client import MANY, SuperLinkClient

PIECE = 50_000


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages can only be made by somebody who has one of its tasks."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def numbers(count: int, repeated: bool = False) -> dict[str, np.ndarray]:
    """With pieces that are all different, or many of which are equal."""
    x = np.zeros(count, np.float32) if repeated else np.arange(count, dtype=np.float32)
    return {"x": x, "y": np.ones(3)}


def message(content: RecordDict) -> tuple[str, dict[str, bytes], ObjectTree]:
    """Its number, and all its objects in the order in which they are carried."""
    made = Message(content, 1, "query")
    objects = {n: thing.deflate() for n, thing in get_all_nested_objects(made).items()}
    return made.object_id, objects, get_object_tree(made)


def content(tensors: Any, heading: str = "heading") -> tuple[RecordDict, records.Sealed]:
    body = records.sealed(Packed(tensors), PIECE)
    return records.content(heading, body.body), body


def taken(objects: dict[str, bytes], number: str, limit: int = 10**9) -> tuple[Any, Unpacker]:
    unpacker = Unpacker()
    answer = ArrivedAnswer(unpacker.feed, limit)
    for name, data in objects.items():
        answer.take(name, data)
    return answer.finish(number), unpacker


@pytest.mark.parametrize("repeated", [False, True])
def test_what_is_sent_is_what_arrives(repeated: bool):
    tensors = numbers(100_000, repeated)
    sent, body = content(tensors)
    number, objects, tree = message(sent)
    assert body.size == Packed(tensors).size
    assert (len(objects) <= 10) == repeated  # Flower carries equal pieces once
    arrived, unpacker = taken(objects, number)
    assert records.heading(arrived) == "heading"
    for found in (unpacker.finish(body.digest), fetched(tree, objects, body.digest)):
        np.testing.assert_array_equal(found["x"], tensors["x"])
        assert list(found) == ["x", "y"]


def fetched(tree: ObjectTree, objects: dict[str, bytes], digest: str) -> dict:
    """As a node takes it from its SuperNode."""
    ends: list[int] = []
    text, pieces = records.streamed(
        records.incoming(tree, objects.__getitem__, lambda: ends.append(1))
    )
    assert text == "heading"
    assert not ends
    found = serialization.unpack_pieces(pieces, digest)
    assert ends == [1]
    return found


def test_pieces_larger_than_flowers_chunks_travel_too():
    body = records.sealed(Packed({"x": np.arange(3_000_000, dtype=np.float32)}), 12_000_000)
    number, objects, _ = message(records.content("heading", body.body))
    _, unpacker = taken(objects, number)
    assert unpacker.finish(body.digest)["x"][-1] == 2_999_999


def test_a_body_that_is_made_late_is_the_same_message_as_one_that_is_there():
    tensors = numbers(100_000)
    late, body = content(tensors)
    pieces = serialization.cut(serialization.pack(tensors), PIECE)
    there = records.content("heading", records.body(pieces))
    assert late.object_id == there.object_id  # the number of a content is its checksum
    assert body.digest == serialization.checksum(pieces)
    assert records.opened(late) == ("heading", pieces)


# Lies --------------------------------------------------------------------------------------------


def chunks(objects: dict[str, bytes]) -> list[str]:
    return [name for name, data in objects.items() if data.startswith(b"ArrayChunk")]


def swapped(objects: dict[str, bytes]) -> dict[str, bytes]:
    """The same objects, two chunks of which come in each other's place."""
    a, b, *_ = chunks(objects)
    places = {a: b, b: a}
    return {places.get(name, name): objects[places.get(name, name)] for name in objects}


def test_chunks_in_another_order_than_they_are_named_are_refused():
    number, objects, _ = message(content(numbers(100_000))[0])
    with pytest.raises(records.Unusable, match="in another order"):
        taken(swapped(objects), number)


def test_a_chunk_that_no_array_names_is_refused():
    number, objects, _ = message(content(numbers(100_000))[0])
    _, more, _ = message(content(numbers(50_000, True))[0])
    extra = chunks(more)[0]
    with pytest.raises(records.Unusable, match="in another order"):
        taken({next(iter(objects)): next(iter(objects.values())), extra: more[extra], **objects},
              number)  # fmt: skip


@pytest.mark.parametrize("order", [[0, 0, 0, 99], [-1, 0], [0.5], ["a"], [0] * 5, [True]])
def test_an_order_that_is_none_is_refused(order: list):
    sent, body = content(numbers(100_000, True))
    changed = RecordDict({records.HEADING: ConfigRecord({"text": "heading", records.ORDER: order})})
    changed[records.BODY] = sent[records.BODY]
    number, objects, tree = message(changed)
    with pytest.raises(records.Unusable, match="malformed"):
        taken(objects, number)
    node = records.incoming(tree, objects.__getitem__, lambda: None)
    with pytest.raises(Damaged):
        serialization.unpack_pieces(records.streamed(node)[1], body.digest)


def test_equal_chunks_count_as_often_as_they_stand_somewhere():
    number, objects, _ = message(content(numbers(1_000_000, True))[0])
    assert sum(map(len, objects.values())) < 200_000
    with pytest.raises(records.Unusable, match="larger than the 1,000,000 bytes"):
        taken(objects, number, 10**6)


def test_an_answer_with_pickles_is_refused_unread():
    sent, _ = content(numbers(10))
    bomb = ArrayRecord()
    bomb["0"] = Array("object", (1,), "numpy.ndarray", b"pickle")
    number, objects, _ = message(RecordDict({**sent, records.BODY: bomb}))
    arrived, _ = taken(objects, number)
    with pytest.raises(Damaged, match="not bytes"):
        records.streamed(arrived)


@pytest.mark.parametrize("kind", ["nothing", "no heading", "two headings"])
def test_a_question_that_is_no_message_of_fedrl_is_empty(kind: str):
    other = {"a": ConfigRecord({"text": "x"}), "b": ConfigRecord({"text": "y"})}
    made = {"nothing": {}, "no heading": {}, "two headings": other}[kind]
    sent = RecordDict(made)
    if kind == "no heading":
        sent[records.BODY] = content(numbers(100_000))[0][records.BODY]
    _, objects, tree = message(sent)
    assert not records.incoming(tree, objects.__getitem__, lambda: None)


# Memory ------------------------------------------------------------------------------------------


def test_neither_end_has_a_message_as_a_whole():
    tensors = {"x": np.arange(4_000_000, dtype=np.float32)}
    held = tensors["x"].nbytes
    sent, body = content(tensors)
    made = Message(sent, 1, "query")
    unpacker = Unpacker()
    answer = ArrivedAnswer(unpacker.feed, 10**9)
    tracemalloc.start()
    try:
        for name, thing in get_all_nested_objects(made).items():
            answer.take(name, thing.deflate())
        answer.finish(made.object_id)
        found = unpacker.finish(body.digest)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found["x"], tensors["x"])
    assert peak < 1.3 * held


def test_large_answers_are_fetched_one_by_one_when_they_are_whole():
    """Half an answer of many clients at the same time would be many models in memory."""
    rng = np.random.default_rng(0)
    sent = [content({"x": rng.standard_normal(250_000)})[0] for _ in range(2)]
    answers = {f"m{i}": message(one) for i, one in enumerate(sent)}
    objects = {n: data for _, some, _ in answers.values() for n, data in some.items()}
    late = answers["m0"][0]
    asked: list[str] = []

    def pull(request: Any) -> Any:
        asked.append(request.object_id)
        return SimpleNamespace(
            object_found=True,
            object_available=request.object_id != late,
            object_content=objects[request.object_id],
        )

    def announced(request: Any) -> Any:
        found = [(m, *answers[m]) for m in sorted(request.message_ids)]
        about = [
            SimpleNamespace(message_id=n, reply_to_message_id=m, src_node_id=1)
            for m, n, _, _ in found
        ]
        return SimpleNamespace(
            messages_list=[SimpleNamespace(metadata=one) for one in about],
            message_object_trees=[tree for *_, tree in found],
        )

    runtime = SimpleNamespace(
        PullObject=pull, PullMessages=announced, ConfirmMessageReceived=lambda _: None
    )
    run: Any = Run(runtime, SimpleNamespace(node=None), 1)  # type: ignore[arg-type]
    link = SuperLinkClient(Connection("x:1"), run)
    assert len(answers["m0"][1]) > MANY
    assert [a.message for a in link.pull(["m0", "m1"], 10**9)] == ["m1"]
    assert asked.count(late) == 1
    assert not set(chunks(answers["m0"][1])) & set(asked)  # nothing of what is on its way
    late = ""
    assert [a.message for a in link.pull(["m0"], 10**9)] == ["m0"]


# SuperLinks and SuperNodes -----------------------------------------------------------------------


def stored(folder: Path, held: int) -> tuple[SpooledObjectStore, str, dict[str, bytes]]:
    store = SpooledObjectStore(folder, held)
    number, objects, tree = message(records.content(
        "heading", records.sealed(Packed({"x": np.arange(500_000, dtype=np.float32)}), 200_000).body
    ))  # fmt: skip
    store.preregister(1, tree)
    for name, data in objects.items():
        assert store.get(name) == b""
        store.put(name, data)
    return store, number, objects


@pytest.mark.parametrize("held", [0, 500_000, 10**9])
def test_a_store_gives_back_what_it_was_given_and_holds_little(held: int, tmp_path: Path):
    store, number, objects = stored(tmp_path / "spool", held)
    assert all(store.get(name) == data for name, data in objects.items())
    kept = sum(len(entry.content) for entry in store.store.values())
    assert kept <= held + 100_000
    assert (tmp_path / "spool").exists() == (held < 10**9)
    store.delete(number)
    assert len(store) == 0
    assert list(tmp_path.glob("spool/*")) == []
    assert store._bytes == 0


def test_nobody_else_can_read_what_lies_in_its_files(tmp_path: Path):
    _, _, objects = stored(tmp_path / "spool", 0)
    files = list((tmp_path / "spool").iterdir())
    assert len(files) == len([n for n in chunks(objects) if len(objects[n]) >= SMALLEST])
    assert all(file.stat().st_mode & 0o077 == 0 for file in (*files, tmp_path / "spool"))
    numbers = np.arange(500_000, dtype=np.float32).tobytes()
    assert not any(numbers[i : i + 64] in f.read_bytes() for f in files for i in (800, 400_000))
    assert not {file.name for file in files} & set(objects)  # a name would tell what it is
    SpooledObjectStore(tmp_path / "spool")  # one that was killed leaves files behind
    assert list(tmp_path.glob("spool/*")) == []


def test_a_file_that_was_changed_is_not_given_out(tmp_path: Path):
    from cryptography.exceptions import InvalidTag

    store, _, objects = stored(tmp_path / "spool", 0)
    for file in (tmp_path / "spool").iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InvalidTag):
        store.get(chunks(objects)[0])


def test_an_object_that_is_not_what_its_number_says_is_not_stored(tmp_path: Path):
    store = SpooledObjectStore(tmp_path / "spool", 0)
    _, objects, tree = message(content(numbers(100_000))[0])
    store.preregister(1, tree)
    a, b, *_ = chunks(objects)
    with pytest.raises(ValueError, match="does not match"):
        store.put(a, objects[b])
    assert store.get(a) == b""


def test_a_supernode_fetches_as_it_stores():
    there: dict[str, bytes] = {}
    asked: list[str] = []

    def pull(name: str) -> bytes:
        asked.append(name)
        if name == "b" and asked.count("b") < 3:
            raise ObjectUnavailableError(name)
        return name.encode()

    pulled = supernode.Pulled(["a", "b", "b", "c", "d", "e"], pull)
    for name in list(pulled.keys()):
        there[name] = pulled.pop(name)
        assert len(set(asked)) <= len(there) + 2  # not all of them before one is used
    assert there == {name: name.encode() for name in "abcde"}


def test_an_object_that_is_gone_ends_the_message():
    def pull(name: str) -> bytes:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        supernode.Pulled(["a"], pull).pop("a")
