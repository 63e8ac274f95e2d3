"""Tensors come back with their structure and bits, and damage is noticed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedrl.core import serialization
from fedrl.core.narrow_numbers import Precision
from fedrl.core.types import Spec
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


@pytest.mark.slow
@given(TREES)
def test_tensors_come_back_bit_by_bit(tree: dict):
    assert_same(serialization.unpack(serialization.pack(tree)), tree)


def test_views_and_nan_travel_too():
    tree = {"t": np.arange(6.0).reshape(2, 3).T, "n": np.array([np.nan, -0.0, np.inf])}
    back = serialization.unpack(serialization.pack(tree))
    np.testing.assert_array_equal(back["t"], tree["t"])
    assert back["n"].tobytes() == tree["n"].tobytes()


NUMBERS = st.floats(-60000, 60000, width=32)
FORMS = ("float16", "bfloat16", "int8")


def there_and_back(x: np.ndarray, precision: Precision) -> np.ndarray:
    back = serialization.unpack(serialization.pack({"x": x}, precision), declared_as({"x": x}))["x"]
    assert (back.dtype, back.shape) == (np.float32, x.shape)
    return back


def declared_as(tree: dict) -> dict[str, Spec]:
    return {name: Spec(x.shape, str(x.dtype)) for name, x in tree.items()}


@given(arrays.arrays("float32", 20, elements=NUMBERS))
def test_float16_rounds_within_its_bound(x: np.ndarray):
    error = np.abs(there_and_back(x, "float16") - x)
    assert (error <= np.maximum(np.abs(x) * 2.0**-11, 2.0**-25)).all()


NORMAL = st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False)


@given(arrays.arrays("float32", (4, 5), elements=NORMAL))
def test_bfloat16_rounds_to_eight_bits(x: np.ndarray):
    fraction, power = np.frexp(x.astype(np.float64))
    expected = np.ldexp(np.rint(fraction * 2**8) / 2**8, power)
    np.testing.assert_array_equal(there_and_back(x, "bfloat16"), expected)


def test_bfloat16_is_torchs():
    """Of all kinds of bits, halves of the last one kept too."""
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    bits[::4] = bits[::4] & 0xFFFF0000 | 0x8000
    x = bits.view(np.float32)
    x = x[np.abs(x) < 2.0**127]
    theirs = torch.from_numpy(x.copy()).bfloat16().float().numpy()
    np.testing.assert_array_equal(there_and_back(x, "bfloat16"), theirs)


@pytest.mark.slow
@given(arrays.arrays("float32", st.integers(0, 700), elements=NUMBERS), st.integers(-30, 30))
def test_int8_is_off_by_a_254th_of_the_largest_of_256(x: np.ndarray, power: int):
    x = x * np.float32(2.0**power)
    back = there_and_back(x, "int8")
    for start in range(0, len(x), 256):
        block, found = x[start : start + 256], back[start : start + 256]
        largest = float(np.abs(block).max())
        assert (np.abs(found.astype(float) - block) <= largest / 254 * (1 + 1e-5) + 1e-40).all()
        assert np.abs(found).max() <= largest * (1 + 1e-6)


@pytest.mark.parametrize("precision", FORMS)
def test_what_a_form_would_spoil_is_left_alone(precision: Precision):
    tree = {"double": np.array([0.1]), "count": np.array([70000])}
    if precision == "float16":
        tree["large"] = np.array([1e5, 0.1], np.float32)
    elif precision == "bfloat16":
        tree["large"] = np.array([np.finfo(np.float32).max, 0.1], np.float32)
    else:
        tree["odd"] = np.array([np.nan, 1.0], np.float32)
        tree["endless"] = np.array([np.inf, 1.0], np.float32)
    assert_same(serialization.unpack(serialization.pack(tree, precision)), tree)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_what_is_not_finite_stays_so(precision: Precision):
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(there_and_back(x, precision), x)


@pytest.mark.parametrize("precision", FORMS)
def test_numbers_without_shape_and_nothing_travel(precision: Precision):
    tree = {
        "one": np.float32(0.5),
        "none": np.zeros((0, 3), np.float32),
        "flat": np.array(0.5, "f4"),
    }
    back = serialization.unpack(serialization.pack(tree, precision))
    assert back["none"].shape == (0, 3)
    assert isinstance(back["one"], np.generic)
    assert back["flat"].shape == ()
    np.testing.assert_allclose([back["one"], back["flat"]], 0.5, rtol=1e-6)


def test_forms_have_the_bytes_that_they_say():
    x = {"x": np.random.default_rng(0).standard_normal(100_000).astype(np.float32)}
    sizes = [len(serialization.pack(x, precision)) for precision in ("float32", *FORMS)]
    np.testing.assert_allclose(np.array(sizes) / 4e5, [1, 0.5, 0.5, 0.254], atol=0.002)


@pytest.mark.parametrize("wrong", ["none", "twice", "short", "alone"])
def test_scales_that_do_not_fit_are_refused(wrong: str):
    from safetensors.numpy import save

    small, scales = np.zeros(300, np.int8), np.ones(2, np.float32)
    rows = {
        "none": [[None, "x", "int8 array", "0"]],
        "twice": [[None, "x", "int8 array", "0"], [None, "x", "scales", "1"],
                  [None, "x", "scales", "2"]],
        "short": [[None, "x", "int8 array", "0"], [None, "x", "scales", "1"]],
        "alone": [[None, "x", "array", "0"], [None, "x", "scales", "1"]],
    }[wrong]  # fmt: skip
    stored = {"0": small, "1": scales[:1] if wrong == "short" else scales, "2": scales}
    kept = {str(number): stored[str(number)] for number in range(len(rows))}
    head = np.frombuffer(json.dumps(rows).encode(), np.uint8)
    with pytest.raises(serialization.Damaged):
        serialization.unpack(save({**kept, "head": head}))


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
