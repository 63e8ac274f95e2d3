"""What travels: tensors come back with their structure and bits, and damage is noticed."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedrl.core import serialization
from fedrl.core.private_files import StateError
from fedrl.core.update_refusal import one_line
from fedrl.engines.flower import messages
from fedrl.engines.flower.client_state_store import (
    HISTORY,
    ClientStateStore,
    with_history,
    without_history,
)
from fedrl.privacy.secure_aggregation.protocol import NO_HISTORY

NAMES = st.text(min_size=1, max_size=6)
DTYPES = st.sampled_from(["float64", "float32", "float16", "int64", "uint8", "bool"])
LEAVES = st.one_of(
    arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.floats(width=32, allow_nan=False).map(np.float32),
)
TREES = st.dictionaries(NAMES, st.one_of(LEAVES, st.dictionaries(NAMES, LEAVES, max_size=3)))


def assert_same(a: object, b: object) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict) and isinstance(b, dict):
        assert list(a) == list(b)
        for name in a:
            assert_same(a[name], b[name])
    elif isinstance(a, np.ndarray | np.generic):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    else:
        assert a == b


@given(TREES)
def test_tensors_come_back_bit_by_bit(tree: dict):
    assert_same(serialization.unpack(serialization.pack(tree)), tree)


def test_views_and_nan_travel_too():
    tree = {"t": np.arange(6.0).reshape(2, 3).T, "n": np.array([np.nan, -0.0, np.inf])}
    back = serialization.unpack(serialization.pack(tree))
    np.testing.assert_array_equal(back["t"], tree["t"])
    assert back["n"].tobytes() == tree["n"].tobytes()


@given(arrays.arrays("float32", 20, elements=st.floats(-60000, 60000, width=32)))
def test_half_rounds_within_its_bound(x: np.ndarray):
    back = serialization.unpack(serialization.pack({"x": x}, half=True))["x"]
    assert back.dtype == np.float32
    assert (np.abs(back - x) <= np.maximum(np.abs(x) * 2.0**-11, 2.0**-25)).all()


def test_half_leaves_alone_what_it_would_spoil():
    tree = {
        "large": np.array([1e5, 0.1], np.float32),
        "double": np.array([0.1]),
        "count": np.array([70000]),
    }
    assert_same(serialization.unpack(serialization.pack(tree, half=True)), tree)


def test_half_is_half():
    x = {"x": np.zeros(10_000, np.float32)}
    assert len(serialization.pack(x, half=True)) < 0.51 * len(serialization.pack(x))


@given(st.binary(max_size=300), st.integers(1, 50))
def test_pieces_join_again(data: bytes, size: int):
    pieces = serialization.cut(data, size)
    assert all(0 < len(piece) <= size for piece in pieces)
    assert serialization.join(pieces, serialization.checksum([data])) == data


def test_pieces_lost_swapped_or_changed_are_noticed():
    pieces = serialization.cut(bytes(range(100)), 30)
    total = serialization.checksum(pieces)
    changed = [pieces[0][:-1] + b"x", *pieces[1:]]
    for wrong in (pieces[:-1], pieces[::-1], changed, []):
        with pytest.raises(serialization.Damaged):
            serialization.join(wrong, total)


@given(st.binary(max_size=200))
def test_garbage_is_damaged_and_nothing_else(data: bytes):
    with pytest.raises(serialization.Damaged):
        serialization.unpack(data)


class Runs:
    def __reduce__(self) -> tuple:
        return (pytest.fail, ("a pickle was read",))


def test_a_pickle_is_refused_unread(tmp_path: Path):
    bomb = pickle.dumps(Runs())
    with pytest.raises(serialization.Damaged):
        serialization.unpack(bomb)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tag.safetensors").write_bytes(bomb)
    with pytest.raises(StateError, match="damaged"):
        ClientStateStore(tmp_path).load("run", "tag")


def test_an_archive_whose_head_lies_is_damaged():
    from safetensors.numpy import save

    for head in ([["a", "b", "array", "7"]], [[None, "x", "array", []]], {"a": 1}, [[1]], 3):
        data = save({"head": np.frombuffer(json.dumps(head).encode(), np.uint8)})
        with pytest.raises(serialization.Damaged):
            serialization.unpack(data)


# The headings beside the tensors ----------------------------------------------------------------


def test_headings_come_back():
    job = messages.Job("n", 3, 2**62 + 1, "run", "", 5, 0.1 + 0.2, "rounds = 1\n", "d")
    assert messages.from_json(messages.to_json(job), messages.Who, messages.Job) == job
    answer = messages.Answer("n", 3, "", 0.1, {"train/return": 1 / 3}, True, "d")
    assert messages.from_json(messages.to_json(answer), messages.Answer) == answer


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "name"},
        {"kind": "no such kind"},
        {"client": "3"},
        {"client": True},
        {"client": 2**70},
        {"metrics": {"a": "b"}},
        {"metrics": [1.0]},
        {"kept": 1},
        {"weight": None},
        {"weight": 10**400},
        {"metrics": {"env/steps": 10**400}},
        {"more": 1},
    ],
)
def test_headings_with_anything_else_are_damaged(change: dict):
    data = json.loads(messages.to_json(messages.Answer("n", 3))) | change
    with pytest.raises(serialization.Damaged):
        messages.from_json(json.dumps(data), messages.Answer)


@pytest.mark.parametrize("field", ["round", "attempt"])
@pytest.mark.parametrize("value", [-1, 2**31, 1.0, True, "1", None])
def test_rounds_and_attempts_are_counts(field: str, value: object):
    job = messages.Job("n", 3, 1, "run", "", 5, 0.0, "", "d", round=2**31 - 1, attempt=4)
    assert messages.from_json(messages.to_json(job), messages.Job) == job
    changed = json.dumps(json.loads(messages.to_json(job)) | {field: value})
    with pytest.raises(serialization.Damaged):
        messages.from_json(changed, messages.Job)


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"kind": []}', "[" * 100_000])
def test_what_is_no_heading_is_damaged(text: str):
    with pytest.raises(serialization.Damaged):
        messages.from_json(text, messages.Answer)


# States on the node's disk ----------------------------------------------------------------------


def test_states_are_kept_by_tag_and_old_ones_go(tmp_path: Path):
    states = ClientStateStore(tmp_path)
    for number in range(6):
        states.save("run", f"t{number}", {"x": np.array(number)}, keep=3, used="t0")
    assert {p.stem for p in tmp_path.rglob("*.safetensors")} == {"t0", "t3", "t4", "t5"}
    assert states.load("run", "t4")["x"] == 4
    assert not list(tmp_path.rglob("*.part"))
    with pytest.raises(StateError, match="not on its disk"):
        states.load("run", "t1")


def test_states_are_private_to_their_owner(tmp_path: Path):
    ClientStateStore(tmp_path).save("run", "t", {"x": 1}, 2, None)
    assert (tmp_path / "run" / "t.safetensors").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["..", "a/b", "../x", "", ".", "a\0", "x" * 101])
def test_states_have_no_names_outside_their_folder(tmp_path: Path, name: str):
    with pytest.raises(StateError):
        ClientStateStore(tmp_path).save(name, "t", {}, 2, None)
    with pytest.raises(StateError):
        ClientStateStore(tmp_path).load("run", name)


def archive(head: bytes) -> bytes:
    from safetensors.numpy import save

    return save({"0": np.zeros(2, np.float32), serialization.HEAD: np.frombuffer(head, np.uint8)})


@pytest.mark.parametrize(
    "head",
    [
        b"[" * 100_000,
        b'[[null, "a", "array", "0"], ["a", "b", "array", "0"]]',
        b'[["a", "b", "array", "0"], [null, "a", "array", "0"]]',
        b'[[null, "a", "array", "0"], [null, "a", "array", "0"]]',
        b'[[null, 5, "array", "0"], [null, "w", "array", "0"]]',
        b'[[7, "w", "array", "0"]]',
        b'[[null, null, "array", "0"]]',
        b'[[null, "w", "plain", {"a": 1}]]',
        b'[[null, "w", "plain", [1]]]',
        b'[[null, "w", 3, "0"]]',
        b'{"a": 1}',
        b"5",
    ],
)
def test_a_head_that_means_no_tensors_is_damaged(head: bytes):
    with pytest.raises(serialization.Damaged):
        serialization.unpack(archive(head))


@settings(max_examples=200)
@given(st.text())
def test_somebody_elses_words_are_one_printable_line(text: str):
    line = one_line(text + "\ud800\n\x1b[2J")
    assert line.isprintable()
    assert len(line) <= 300
    line.encode()


def test_a_state_that_rounds_still_start_from_is_kept(tmp_path: Path):
    """A driver that is killed between two checkpoints starts from it again and again."""
    states = ClientStateStore(tmp_path)
    states.save("run", "checkpoint", {"x": 0}, 3, None)
    for attempt in range(10):
        assert states.load("run", "checkpoint") == {"x": 0}
        for number in range(2):  # rounds after the checkpoint, until the next kill
            states.save("run", f"{attempt}-{number}", {"x": 1}, 3, None)
            time.sleep(0.002)


def test_a_history_is_that_of_all_jobs_before():
    state = {"x": 1}
    first = with_history(state, NO_HISTORY, b"a" * 32)
    assert without_history(serialization.unpack(serialization.pack(first)))[0] == state
    told = without_history(first)[1]
    for before, job in ((NO_HISTORY, b"b" * 32), (told, b"a" * 32), (b"b" * 32, b"a" * 32)):
        assert without_history(with_history(state, before, job))[1] != told
    assert without_history(None) == (None, NO_HISTORY)
    assert without_history(state)[1] != without_history(state)[1]  # nobody's
    for damaged in (1, "", "zz" * 32, np.zeros(3)):
        with pytest.raises(StateError, match="damaged"):
            without_history(state | {HISTORY: damaged})
