"""Named tensors as an archive whose bytes are made when they are read, any part of them.

A model of gigabytes is never there a second time: what is read of a tensor is a view of it, or the
part that is asked for in fewer bytes (`narrow_numbers`). The tensors must not change meanwhile. The
head lies first, so that who reads from the beginning knows what comes.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from fedrl.core import archive_head, narrow_numbers
from fedrl.core.archive_head import HEAD, SCALES, Entry, Scalar
from fedrl.core.narrow_numbers import BLOCK, Precision
from fedrl.core.types import Tensors

Leaf = np.ndarray | np.generic | Scalar
NAMES = {name: word for word, name in archive_head.TYPES.items()}
ALIGNED = 8
"""Bytes of which the heads have a multiple, so that tensors lie well for who maps the file."""


class _Part(Protocol):
    """The bytes of one stored tensor."""

    def read(self, start: int, stop: int) -> bytes | memoryview: ...


class _Bytes(NamedTuple):
    """A tensor as it is, or a head."""

    data: memoryview

    def read(self, start: int, stop: int) -> memoryview:
        return self.data[start:stop]


class _Narrowed(NamedTuple):
    """A tensor in fewer bytes; int8 with the scales of its blocks."""

    flat: np.ndarray
    form: str
    scales: np.ndarray | None

    def read(self, start: int, stop: int) -> memoryview:
        item = np.dtype(narrow_numbers.STORED[self.form]).itemsize
        first = start // item // BLOCK * BLOCK
        last = min(-(-stop // item), self.flat.size)
        found = np.empty(last - first, narrow_numbers.STORED[self.form])
        for part in narrow_numbers.parts(found.size):
            a, b = first + part.start, first + part.stop
            scales = None if self.scales is None else self.scales[a // BLOCK : -(-b // BLOCK)]
            found[part] = narrow_numbers.narrow(self.flat[a:b], self.form, scales)
        return _bytes(found)[start - first * item : stop - first * item]


class Packed:
    """`size` bytes, of which `read` gives some."""

    def __init__(self, tensors: Tensors, precision: Precision = "float32") -> None:
        self._parts: list[_Part] = []
        self._starts: list[int] = []
        self.size = 0
        index: dict[str, dict[str, object]] = {}
        entries: list[Entry] = []
        arrays: list[tuple[_Part, str, tuple[int, ...], int]] = []
        for group, name, leaf in _walk(tensors):
            if not isinstance(leaf, np.ndarray | np.generic):
                entries.append(Entry(group, name, "plain", archive_head.plain(leaf)))
                continue
            kind = "array" if isinstance(leaf, np.ndarray) else "number"
            for prefix, stored in _stored(leaf, precision):
                what = SCALES if prefix == SCALES else f"{prefix} {kind}".strip()
                entries.append(Entry(group, name, what, str(len(arrays))))
                arrays.append(stored)
        head = _padded(json.dumps(entries).encode())
        arrays.insert(0, (_Bytes(memoryview(head)), "uint8", (len(head),), len(head)))
        reached = 0
        for number, (_, dtype, shape, size) in enumerate(arrays):
            index[HEAD if number == 0 else str(number - 1)] = {
                "dtype": NAMES[dtype], "shape": shape, "data_offsets": (reached, reached + size),
            }  # fmt: skip
            reached += size
        words = _padded(json.dumps(index, separators=(",", ":")).encode())
        beginning = len(words).to_bytes(archive_head.SIZE_BYTES, "little") + words
        self._add(_Bytes(memoryview(beginning)), len(beginning))
        for part, _, _, size in arrays:
            self._add(part, size)

    def _add(self, part: _Part, size: int) -> None:
        if size:
            self._parts.append(part)
            self._starts.append(self.size)
            self.size += size

    def read(self, start: int, stop: int) -> bytes | memoryview:
        """Bytes from `start` to `stop`; a view where they are one tensor's own."""
        stop = min(stop, self.size)
        found: list[bytes | memoryview] = []
        while start < stop:
            number = bisect.bisect_right(self._starts, start) - 1
            begin = self._starts[number]
            last = number + 1 == len(self._starts)
            end = min(stop, self.size if last else self._starts[number + 1])
            found.append(self._parts[number].read(start - begin, end - begin))
            start = end
        return found[0] if len(found) == 1 else b"".join(found)

    def pieces(self, size: int) -> Iterator[bytes | memoryview]:
        """All of it, in pieces of at most `size` bytes."""
        return (self.read(start, start + size) for start in range(0, self.size, size))


def _stored(
    leaf: np.ndarray | np.generic, precision: Precision
) -> Iterator[tuple[str, tuple[_Part, str, tuple[int, ...], int]]]:
    """What is stored of an array, with its dtype, shape and bytes, and what form it is."""
    array = np.asarray(leaf, order="C")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.name not in NAMES:
        raise TypeError(f"a tensor of {array.dtype.name} cannot travel")
    flat = array.reshape(-1)
    if not narrow_numbers.fits(flat, precision):
        yield "", (_Bytes(_bytes(flat)), array.dtype.name, array.shape, array.nbytes)
        return
    dtype = narrow_numbers.STORED[precision]
    scales = narrow_numbers.scales(flat) if precision == "int8" else None
    size = array.size * np.dtype(dtype).itemsize
    yield precision, (_Narrowed(flat, precision, scales), dtype, array.shape, size)
    if scales is not None:
        yield SCALES, (_Bytes(_bytes(scales)), "float32", scales.shape, scales.nbytes)


def _bytes(flat: np.ndarray) -> memoryview:
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def _padded(text: bytes) -> bytes:
    """JSON may end with spaces."""
    return text + b" " * (-len(text) % ALIGNED)


def _walk(tensors: Tensors) -> Iterator[tuple[str | None, str | None, Leaf]]:
    """(group, name, leaf) in the order of the dict; an empty group is one with the name None."""
    for name, value in tensors.items():
        if not isinstance(value, dict):
            yield None, name, value
        elif not value:
            yield name, None, None
        for inner, leaf in value.items() if isinstance(value, dict) else ():
            yield name, inner, leaf
