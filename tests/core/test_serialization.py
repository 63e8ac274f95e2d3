"""Tensors come back with their structure and bits, and damage is noticed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedrl.core import serialization
from fedrl.core.update_refusal import one_line

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


def test_an_archive_whose_head_lies_is_damaged():
    from safetensors.numpy import save

    for head in ([["a", "b", "array", "7"]], [[None, "x", "array", []]], {"a": 1}, [[1]], 3):
        data = save({"head": np.frombuffer(json.dumps(head).encode(), np.uint8)})
        with pytest.raises(serialization.Damaged):
            serialization.unpack(data)


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
