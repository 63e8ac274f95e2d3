"""Archives that are made and taken in pieces are those that are made and taken as a whole."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
import typing
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedrl.core import narrow_numbers, serialization
from fedrl.core.narrow_numbers import Precision
from fedrl.core.serialization import Damaged, Packed, Undeclared, Unpacker
from fedrl.core.types import Spec

FORMS = typing.get_args(Precision)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
TENSORS = st.one_of(
    arrays.arrays("float32", SHAPES, elements=st.floats(-100, 100, width=32)),
    arrays.arrays(st.sampled_from(["float64", "float16", "int64", "uint8", "bool"]), SHAPES),
    st.floats(width=32).map(np.float32),
    st.text(max_size=5),
    st.integers(-5, 5),
)
TREES = st.dictionaries(
    st.text(min_size=1, max_size=3),
    st.one_of(TENSORS, st.dictionaries(st.text(min_size=1, max_size=3), TENSORS, max_size=2)),
    max_size=4,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, np.ndarray | np.generic) and isinstance(b, np.ndarray | np.generic):
        found = a.dtype, a.shape, a.tobytes(), type(a)
        return found == (b.dtype, b.shape, b.tobytes(), type(b))
    return type(a) is type(b) and a == b


def taken(pieces: list[bytes], declared: dict[str, Spec] | None = None) -> dict:
    return serialization.unpack_pieces(pieces, serialization.checksum(pieces), declared)


@settings(max_examples=200)
@given(TREES, st.sampled_from(FORMS), st.integers(1, 70))
def test_pieces_of_any_size_are_the_whole(tree: dict, precision: Precision, size: int):
    whole = serialization.pack(tree, precision)
    pieces = [bytes(piece) for piece in Packed(tree, precision).pieces(size)]
    assert b"".join(pieces) == whole
    assert same(taken(pieces), serialization.unpack(whole))
    assert same(taken([whole]), taken([whole[i : i + 1] for i in range(len(whole))]))


@settings(max_examples=100)
@given(st.integers(0, 3 * narrow_numbers.PART), st.sampled_from(FORMS), st.data())
def test_a_part_has_the_bytes_that_it_has_in_the_whole(count, precision, data):
    rng = np.random.default_rng(count)
    packed = Packed({"x": rng.standard_normal(count).astype(np.float32)}, precision)
    whole = bytes(packed.read(0, packed.size))
    start = data.draw(st.integers(0, packed.size))
    stop = data.draw(st.integers(start, packed.size))
    assert bytes(packed.read(start, stop)) == whole[start:stop]


def test_float32_arrives_bit_by_bit_from_pieces_that_cut_numbers():
    bits = np.random.default_rng(0).integers(0, 2**32, 100_002, dtype=np.uint32)
    tree = {"x": bits.view(np.float32).reshape(3, -1), "none": np.zeros((0, 7), np.float32)}
    pieces = [bytes(piece) for piece in Packed(tree).pieces(1013)]
    assert same(taken(pieces), tree)


@pytest.mark.parametrize("precision", FORMS)
def test_forms_of_parts_are_those_of_the_whole(precision: Precision):
    """Of a tensor that is larger than what is looked at together, with blocks that are cut."""
    x = np.random.default_rng(0).standard_normal(narrow_numbers.PART * 2 + 77).astype(np.float32)
    found = taken([bytes(p) for p in Packed({"x": x}, precision).pieces(999)])["x"]
    assert same(found, serialization.unpack(serialization.pack({"x": x}, precision))["x"])
    off = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8, "int8": 1 / 127}[precision]
    assert np.abs(found - x).max() <= off * np.abs(x).max()


def test_any_reader_of_safetensors_reads_it():
    from safetensors.numpy import load

    tree = {"a": np.arange(5, dtype=np.uint8), "b": {"c": np.ones((2, 3), np.float32)}}
    found = load(serialization.pack(tree))
    np.testing.assert_array_equal(found["0"], tree["a"])
    np.testing.assert_array_equal(found["1"], tree["b"]["c"])


# Lies --------------------------------------------------------------------------------------------


def archive(index: dict, content: bytes) -> bytes:
    text = json.dumps(index).encode()
    return len(text).to_bytes(8, "little") + text + content


def lying(shape: list[int], size: int, entries: list) -> bytes:
    """Says that it has a tensor of this shape and size; has the head, and sixteen bytes."""
    head = json.dumps(entries).encode()
    index = {
        "head": {"dtype": "U8", "shape": [len(head)], "data_offsets": [0, len(head)]},
        "0": {"dtype": "F32", "shape": shape, "data_offsets": [len(head), len(head) + size]},
    }
    return archive(index, head + bytes(16))


ONE = [[None, "x", "array", "0"]]


@pytest.mark.parametrize("shape, size", [([2**40], 2**42), ([5], 20), ([3], 12), ([2**59], 2**61)])
def test_a_tensor_that_is_not_as_long_as_it_says_is_damaged(shape: list[int], size: int):
    with pytest.raises(Damaged, match="not an archive"):
        taken([lying(shape, size, ONE)])


def test_with_a_declaration_there_is_no_room_for_anything_else():
    data = lying([2**28], 2**30, ONE)
    tracemalloc.start()
    try:
        with pytest.raises(Undeclared):
            taken([data], {"x": Spec((4,), "float32")})
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_what_comes_behind_the_last_tensor_is_damaged():
    data = serialization.pack({"x": np.ones(3, np.float32)})
    for wrong in (data + b"\0", data[:-1], data[:20], b""):
        with pytest.raises(Damaged):
            taken([wrong])


def test_a_head_that_does_not_come_first_is_damaged_on_the_way():
    """Nobody could say what comes before it; in a file it may lie anywhere."""
    from safetensors.numpy import save

    head = np.frombuffer(json.dumps(ONE).encode(), np.uint8)
    data = save({"0": np.zeros(2, np.float32), "head": head})
    assert same(serialization.unpack(data), {"x": np.zeros(2, np.float32)})
    with pytest.raises(Damaged):
        taken([data])


def test_a_checksum_that_does_not_fit_is_told_before_anything_else():
    unpacker = Unpacker()
    unpacker.feed(b"garbage that is no archive")
    with pytest.raises(Damaged, match="checksum"):
        unpacker.finish(hashlib.sha256(b"something else").hexdigest())


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_garbage_in_pieces_is_damaged_and_nothing_else(pieces: list[bytes]):
    with pytest.raises(Damaged):
        taken(pieces)


@pytest.mark.parametrize("scale", [np.inf, np.nan, 3e38])
def test_scales_that_are_no_numbers_are_read_without_a_word(scale: float):
    """What comes of them is not finite: whoever uses an update refuses that."""
    data = bytearray(serialization.pack({"x": np.arange(256, dtype=np.float32)}, "int8"))
    data[-4:] = np.float32(scale).tobytes()  # the scales come last
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(taken([bytes(data)])["x"]).all()


# Memory ------------------------------------------------------------------------------------------

NUMBERS = 2**22


@pytest.mark.parametrize("precision", FORMS)
def test_sending_makes_no_copy_of_the_model(precision: Precision):
    model = {f"w{i}": np.ones(NUMBERS // 4, np.float32) * i for i in range(4)}
    held = sum(x.nbytes for x in model.values())
    tracemalloc.start()
    try:
        packed = Packed(model, precision)
        size = sum(len(piece) for piece in packed.pieces(2**18))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == packed.size
    assert peak < held / 5


@pytest.mark.parametrize("precision, most", [("float32", 1.1), ("bfloat16", 1.1), ("int8", 1.4)])
def test_receiving_has_the_model_once(precision: Precision, most: float):
    """int8 waits for its scales, a quarter of a tensor."""
    model = {f"w{i}": np.ones(NUMBERS // 4, np.float32) * i for i in range(4)}
    held = sum(x.nbytes for x in model.values())
    packed = Packed(model, precision)
    digest = serialization.checksum(packed.pieces(2**18))
    tracemalloc.start()
    try:
        found = serialization.unpack_pieces(packed.pieces(2**18), digest)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert set(found) == set(model)
    assert peak < most * held
