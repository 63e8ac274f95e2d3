"""Random search over answers: each is a Failure, or exactly what was declared.

A genuine answer is taken apart (safetensors' head, our head, the bytes), changed in one to three
places, put together again with a checksum that fits, and given to the engine. Whatever it says, the
memory that reading it takes stays within a bound, and nothing is raised.

`python tests/attacks/test_random_messages.py 100000` tries as many and prints what came of them.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
import tracemalloc
import typing
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

sys.path.insert(0, str(Path(__file__).parent.parent))  # where it is a command

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity
from support.flower_nodes import Net
from support.toy import Toy

from fedrl.core import serialization, tree
from fedrl.core.narrow_numbers import Precision
from fedrl.core.types import Failure, Job, Result, Spec
from fedrl.core.update_refusal import refusal
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.adapter.driver import Run
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.superlink_client import Arrived, SuperLinkClient

ROOM = 2**22
"""Bytes that reading any answer may take beside four times what came and what was declared."""
SIZE = 20_000


class Wide(Toy):
    """Declares one tensor of every kind that travels in another way."""

    def declare(self, broadcast: Any) -> dict[str, Spec]:
        return super().declare(broadcast) | {
            "g/half": Spec((SIZE,), "float32"),
            "g/count": Spec((), "int64"),
            "flags": Spec((4,), "bool"),
            "none": Spec((0, 3), "float32"),
        }

    def local(self, job: Job) -> Result:
        result = super().local(job)
        more = {
            "g": {"half": np.ones(SIZE, np.float32), "count": np.array(3)},
            "flags": np.array([True, False, True, True]),
            "none": np.zeros((0, 3), np.float32),
        }
        return replace(result, update=result.update | more)


# An archive, taken apart -----------------------------------------------------------------------


class Raw(str):
    """JSON as it stands: what no encoder would write."""


def dumped(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        value = list(value.items())
        return "{" + ", ".join(f"{json.dumps(k)}: {dumped(v)}" for k, v in value) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value)


class Archive:
    """The tensors' places (`about`) and bytes, the entries of our head, and what is said of it."""

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:8], "little")
        self.about: dict[str, Any] = json.loads(data[8 : 8 + size])
        self.body = bytearray(data[8 + size :])
        start, end = self.about.pop("head")["data_offsets"]
        self.entries: list[Any] = json.loads(self.body[start:end])
        del self.body[start:end]  # it goes behind the others, whatever length it will have
        for place in self.about.values():
            offsets = place["data_offsets"]
            offsets[:] = [o - (end - start) if o >= end else o for o in offsets]
        self.head: dict[str, Any] = {}
        self.tail = b""
        self.size: int | None = None

    def places(self) -> list[dict[str, Any]]:
        return [*(p for p in self.about.values() if isinstance(p, dict)), self.head]

    def data(self) -> bytes:
        head = dumped(self.entries).encode("utf-8", "surrogatepass")
        begin = len(self.body)
        true = {"dtype": "U8", "shape": [len(head)], "data_offsets": [begin, begin + len(head)]}
        text = dumped(self.about | {"head": true | self.head}).encode("utf-8", "surrogatepass")
        size = len(text) if self.size is None else self.size
        return size.to_bytes(8, "little") + text + bytes(self.body) + head + self.tail


# What may be wrong with it ---------------------------------------------------------------------

NUMBERS: list[Any] = [
    0, 1, -1, 2, 7, 2**31, 2**53, 2**62, 2**63, 2**64, -(2**63), 1.5, True, None, "1", [], {},
    Raw("9" * 5000), Raw("1e400"), Raw("NaN"), Raw("-Infinity"), Raw("[" * 2000), Raw('"\\ud800"'),
]  # fmt: skip
NAMES: list[Any] = ["", "a", "b", "g", "g/half", "head", "__proto__", "\ud800", None, 5, "x" * 5000]
KINDS: list[Any] = [
    "array", "number", "float16 array", "float16 number", "bfloat16 array", "int8 array", "scales",
    "plain", "float16", "", 3, None,
]  # fmt: skip
DTYPES: list[Any] = [
    "F16",
    "F32",
    "F64",
    "U8",
    "BOOL",
    "I64",
    "C64",
    "BF16",
    "F8_E4M3",
    "",
    4,
    None,
]
PLAIN: list[Any] = [*NUMBERS, "text", "x" * 20_000, Raw('{"a": 1}'), Raw("{}" + "}" * 3)]


def change_entry(rng: random.Random, it: Archive) -> None:
    entry = rng.choice(it.entries)
    if not isinstance(entry, list) or len(entry) < 4:
        return
    place = rng.randrange(4)
    choices = [NAMES, NAMES, KINDS, [*map(str, range(8)), *PLAIN]][place]
    entry[place] = rng.choice(choices)


def repeat_entry(rng: random.Random, it: Archive) -> None:
    """One tensor under many names."""
    entry = rng.choice(it.entries)
    times = rng.choice([1, 2, 50, 1000])
    renamed, kind = rng.random() < 0.9, rng.choice(KINDS[:4])
    for number in range(times):
        copy = list(entry) if isinstance(entry, list) else entry
        if isinstance(copy, list) and len(copy) == 4 and renamed:
            copy[1:3] = f"n{number}", kind
        it.entries.append(copy)


def lose_entry(rng: random.Random, it: Archive) -> None:
    if len(it.entries) > 1:
        it.entries.pop(rng.randrange(len(it.entries)))


def swap_entries(rng: random.Random, it: Archive) -> None:
    a, b = rng.choice(it.entries), rng.choice(it.entries)
    if all(isinstance(x, list) and len(x) == 4 for x in (a, b)):
        a[3], b[3] = b[3], a[3]


def bend_entry(rng: random.Random, it: Archive) -> None:
    it.entries[rng.randrange(len(it.entries))] = rng.choice(
        [
            [],
            {},
            5,
            "text",
            [1, 2, 3],
            [None] * 5,
            Raw("[" * 500),
            Raw("[[], " * 90 + "0" + "]" * 90),
        ]
    )


def bomb_entries(rng: random.Random, it: Archive) -> None:
    it.entries += [rng.choice([[], {}, 0, [None, "z", "plain", 1]])] * rng.choice([10, 5000])


def change_place(rng: random.Random, it: Archive) -> None:
    about = rng.choice(it.places())
    key = rng.choice(["dtype", "shape", "data_offsets"])
    if key == "dtype":
        about[key] = rng.choice(DTYPES)
    elif not isinstance(about.get(key), list) or not about[key] or rng.random() < 0.2:
        about[key] = rng.choice([[], [0], [2**40], [0, 2**60], [2**31] * 3, [1] * 70, *NUMBERS])
    else:
        about[key][rng.randrange(len(about[key]))] = rng.choice(NUMBERS)


def grow_place(rng: random.Random, it: Archive) -> None:
    """A shape and offsets that fit each other, and nothing else."""
    about = rng.choice(it.places())
    start, rows = rng.choice([0, len(it.body), 8]), rng.choice([1, 1000, 2**20, 2**40])
    about |= {"dtype": "F16", "shape": [rows], "data_offsets": [start, start + 2 * rows]}


def share_place(rng: random.Random, it: Archive) -> None:
    """Two tensors of the same bytes."""
    a, b = rng.choice(it.places()), rng.choice(it.places())
    a |= b


def name_places(rng: random.Random, it: Archive) -> None:
    names = list(it.about)
    if rng.random() < 0.5:
        it.about[rng.choice(["__metadata__", "99", "", "\ud800"])] = rng.choice(
            [{"a": "b"}, {}, 5, {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}]
        )
    elif len(names) > 2:
        it.about.pop(rng.choice(names))


def change_size(rng: random.Random, it: Archive) -> None:
    it.size = rng.choice([0, 1, 2**20, 2**31, 2**63, 2**64 - 1])


def change_bytes(rng: random.Random, it: Archive) -> None:
    it.tail = rng.choice([b"\0", bytes(1000), b"{}"])
    if rng.random() < 0.5:
        it.body = it.body[: rng.randrange(len(it.body) + 1)]


STRUCTURAL: list[Callable[[random.Random, Archive], None]] = [
    change_entry, repeat_entry, lose_entry, swap_entries, bend_entry, bomb_entries, change_place,
    grow_place, share_place, name_places, change_size, change_bytes,
]  # fmt: skip


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Bits turned round, parts cut out, doubled or moved."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at, to = sorted(rng.randrange(len(changed) + 1) for _ in range(2))
        kind = rng.randrange(4)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : min(to, at + 40)]
        elif kind == 2:
            changed[at:at] = changed[at : min(to, at + 40)]
        else:
            changed[at : at + 4] = rng.randbytes(4)
    return bytes(changed)


def mutated(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return flipped(rng, data)
    archive = Archive(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(STRUCTURAL)(rng, archive)
    return archive.data()


def bent_heading(rng: random.Random, text: str) -> str:
    """The JSON beside the tensors, with one field of another kind."""
    told = json.loads(text)
    told[rng.choice([*told, "more"])] = rng.choice([*PLAIN, {"env/steps": Raw("1e400")}, {"a": {}}])
    return dumped(told) if rng.random() < 0.9 else dumped(told)[: rng.randrange(200)]


def search(
    count: int, folder: Path, seed: int = 0, precision: Precision = "float32"
) -> Counter[str]:
    """What became of so many answers; an assertion if one did what none may do."""
    rng = random.Random(seed)
    algorithm = Wide(1)
    net = Net(algorithm, folder, 1, precision)
    broadcast = algorithm.broadcast(algorithm.init(0), 1)
    specs = algorithm.declare(broadcast)
    declared = sum(int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in specs.values())
    came = 0

    def lie(answer: Arrived) -> Arrived:
        nonlocal came
        text, pieces = records.opened(answer.content)
        data = b"".join(pieces)
        if rng.random() < 0.9:
            data = mutated(rng, data)
        pieces = [data]
        heading = messages.from_json(text, messages.Answer)
        text = messages.to_json(replace(heading, digest=serialization.checksum(pieces)))
        if rng.random() < 0.2:
            text = bent_heading(rng, text)
        came = len(data) + len(text)
        told = records.content(text, records.body(pieces))
        tracemalloc.start()  # not before: it makes lying slow
        return answer._replace(content=told)

    net.spoil = lie
    engine = net.engine(wait=0.0)
    found: Counter[str] = Counter()
    try:
        for number in range(count):
            (outcome,) = engine.run([Job(0, broadcast, None, number)])
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak <= 4 * (declared + came) + ROOM, f"{number}: {peak:,} bytes for {came:,}"
            if isinstance(outcome, Failure):
                assert outcome.reason
                found["refused"] += 1
                continue
            if refusal(outcome, specs, algorithm.reports):
                found["refused by the round loop"] += 1
                continue
            update = tree.flatten(outcome.update)
            assert {n: (a.shape, a.dtype.name) for n, a in update.items()} == {
                n: (s.shape, s.dtype) for n, s in specs.items()
            }
            found["as declared"] += 1
    finally:
        tracemalloc.stop()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("precision", typing.get_args(Precision))
def test_every_answer_is_refused_or_as_declared(precision: Precision, tmp_path: Path):
    found = search(300, tmp_path, seed=16, precision=precision)
    assert found["refused"] > 150
    assert found["as declared"] > 10  # some are left as they were, or differ in their numbers


@pytest.mark.slow
def test_a_broadcast_is_read_within_bounds_too():
    """A node reads what a coordinator sends, who declares nothing."""
    rng = random.Random(16)
    algorithm = Wide(1)
    given = algorithm.broadcast(algorithm.init(0), 1) | {"text": "x", "more": {"n": np.float32(1)}}
    good = serialization.pack(given)
    try:
        for number in range(1000):
            data = mutated(rng, good)
            tracemalloc.start()
            with contextlib.suppress(serialization.Damaged):
                serialization.unpack(data)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak <= 20 * len(data) + ROOM, f"{number}: {peak:,} bytes for {len(data):,}"
    finally:
        tracemalloc.stop()


# The ones that were found first ----------------------------------------------------------------


def named_often(kind: str) -> bytes:
    """A tensor of 64 KB under 4,000 names: 256 MB, or 512 MB as float32."""
    from safetensors.numpy import save

    entries = [[None, f"n{number}", kind, "0"] for number in range(4000)]
    head = np.frombuffer(json.dumps(entries).encode(), np.uint8)
    return save({"0": np.zeros(2**15, np.float16), "head": head})


@pytest.mark.parametrize("kind", ["array", "float16 array"])
def test_a_tensor_of_many_names_is_refused_unrestored(kind: str):
    data = named_often(kind)
    tracemalloc.start()
    try:
        with pytest.raises(serialization.Damaged):
            serialization.unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value",
    ["x" * 70_000, 2**64, -(2**64), [1], {"a": 1}],
    ids=["text", "int", "-int", "list", "dict"],
)
def test_plain_values_have_bounds_on_both_sides(value: Any):
    from safetensors.numpy import save

    head = np.frombuffer(json.dumps([[None, "a", "plain", value]]).encode(), np.uint8)
    with pytest.raises(serialization.Damaged):
        serialization.unpack(save({"head": head}))


class Objects:
    """A SuperLink that has these objects, and gives them out."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents

    def PullObject(self, request: Any) -> Any:
        content = self.contents[request.object_id]
        return SimpleNamespace(object_found=True, object_available=True, object_content=content)


def test_flowers_own_objects_may_not_name_each_other_too_often(monkeypatch: pytest.MonkeyPatch):
    """Flower puts an array together from chunks, each as often as the array says."""
    from fedrl.engines.flower.superlink_client import _Arriving

    content = records.content("heading", records.body([bytes(range(256)) * 256]))
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    sent = Message(content, 1, "query")
    contents = {number: thing.deflate() for number, thing in get_all_nested_objects(sent).items()}
    bombed = dict(contents)
    for number, data in contents.items():
        if data.startswith(b"Array "):
            bombed[number] = data.replace(
                b'"arraychunk_ids": [0]', b'"arraychunk_ids": [%s0]' % (b"0, " * 8000)
            )
            assert bombed[number] != data
            head, _, body = bombed[number].partition(b"\0")
            words = head.split(b" ")
            bombed[number] = b" ".join([*words[:-1], str(len(body)).encode()]) + b"\0" + body

    def fetched(objects: dict[str, bytes]) -> Arrived:
        run = Run(Objects(objects), SimpleNamespace(node=None), 1)  # type: ignore[arg-type]
        link = SuperLinkClient(Connection("x:1"), run)
        found = link._fetch(sent.object_id, _Arriving("q", 1, list(objects)), 10**6)
        assert found is not None
        return found

    assert fetched(contents).content is not None
    tracemalloc.start()
    try:
        found = fetched(bombed)
        assert (
            tracemalloc.get_traced_memory()[1] < 10 * 10**6
        )  # and not the 500 MB that it asks for
    finally:
        tracemalloc.stop()
    assert found.content is None
    assert "named too often" in found.error


if __name__ == "__main__":
    for precision in typing.get_args(Precision):
        with tempfile.TemporaryDirectory() as folder:
            print(precision, dict(search(int(sys.argv[1]), Path(folder), precision=precision)))
