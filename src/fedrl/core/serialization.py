"""Named tensors as bytes, and bytes as pieces with a checksum: what travels, without Flower.

The bytes are a safetensors file: no pickle, nothing that runs when it is read. Its tensors are
numbered; one more, `head`, is JSON that says where each belongs and holds the plain scalars. So
what is unpacked has the structure, the types and the bits of what was packed.

Who reads does not trust who wrote. Names, shapes and dtypes are read from the two heads, which are
small, and compared with what was declared before any tensor is restored; each stored tensor is used
once. So what is restored has at most four times the bytes that came (int8), and with a declaration
the bytes that it declares.

float32 tensors may travel in fewer bytes (`narrow_numbers`); they are float32 again where they
arrive.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.core import narrow_numbers
from fedrl.core.narrow_numbers import Precision
from fedrl.core.tree import SEPARATOR
from fedrl.core.types import JsonValue, Spec, Tensors
from fedrl.core.update_refusal import undeclared

HEAD = "head"
SCALES = "scales"
"""The kind of what stands behind an int8 tensor of the same name."""
KINDS = ("array", "number", SCALES, *(f"{form} {kind}" for form in narrow_numbers.STORED
                                      for kind in ("array", "number")))  # fmt: skip
TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32",
    "F64": "float64", "C64": "complex64",
}  # fmt: skip
"""Of safetensors, in NumPy's words."""
MOST_DIMENSIONS = 32
LARGEST_HEAD = 2**22
"""Bytes of safetensors' head and of ours, where nothing is declared: some 40,000 tensors. JSON may
take twenty times its bytes once it is read."""
HEAD_ROOM = 2**12
LONGEST_TEXT = 2**16
LARGEST_INTEGER = 2**63
Scalar = bool | int | float | str | None
Leaf = np.ndarray | np.generic | Scalar


class Damaged(Exception):
    """Bytes that are not what was sent; one line that names no content."""


class Undeclared(Damaged):
    """An archive, but not the one that was declared; in the words of `update_refusal.py`."""


class Stored(NamedTuple):
    """Where a tensor lies in an archive."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Entry(NamedTuple):
    """What the head says of one leaf; `value` is a plain one, or the number of a stored tensor."""

    group: str | None
    name: str | None
    kind: str
    value: Scalar


def pack(tensors: Tensors, precision: Precision = "float32") -> bytes:
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray] = {}
    entries: list[Entry] = []
    for group, name, leaf in _walk(tensors):
        if isinstance(leaf, np.ndarray | np.generic):
            array = np.asarray(leaf, order="C")
            kind = "array" if isinstance(leaf, np.ndarray) else "number"
            form = narrow_numbers.narrow(array, precision)
            kinds = (f"{precision} {kind}", SCALES) if form else (kind,)
            for what, stored in zip(kinds, form or (array,), strict=False):
                number = str(len(arrays))
                arrays[number] = stored
                entries.append(Entry(group, name, what, number))
        else:
            entries.append(Entry(group, name, "plain", _plain(leaf)))
    arrays[HEAD] = np.frombuffer(json.dumps(entries).encode(), np.uint8)
    return save(arrays)


def unpack(data: bytes, declared: Mapping[str, Spec] | None = None) -> Tensors:
    """What was packed. With a declaration that and nothing else, or `Damaged`."""
    try:
        stored, begin = _stored(data, _largest_head(declared))
        entries = _entries(data, stored.pop(HEAD), begin, _largest_head(declared))
        _check_uses(entries, stored)
        if declared is not None:
            _check_declared(entries, stored, declared)
        tensors: Tensors = {}
        scales = {entry[:2]: entry for entry in entries if entry.kind == SCALES}
        for entry in entries:
            if entry.kind == SCALES:
                continue
            inside = tensors if entry.group is None else tensors.setdefault(entry.group, {})
            if not isinstance(inside, dict) or entry.name in inside:
                raise ValueError("one name for two things")
            if entry.name is not None:
                inside[entry.name] = _leaf(entry, scales.get(entry[:2]), data, stored, begin)
        return tensors
    except (
        KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError,
        MemoryError,
    ) as error:  # fmt: skip
        raise Damaged(f"not an archive of tensors ({type(error).__name__})") from error


def _largest_head(declared: Mapping[str, Spec] | None) -> int:
    """Bytes. A character may be written as six, once more for its scales; a tensor needs less than
    the rest."""
    if declared is None:
        return LARGEST_HEAD
    return HEAD_ROOM + sum(384 + 12 * len(n) + 24 * len(s.shape) for n, s in declared.items())


def _stored(data: bytes, largest: int) -> tuple[dict[str, Stored], int]:
    """All tensors by their numbers, and where their bytes begin: they fill the archive, each its
    own part of it."""
    size = int.from_bytes(data[:8], "little")
    begin = 8 + size
    if not 0 < size <= min(largest, len(data) - 8):
        raise ValueError("no head of this size")
    head = json.loads(data[8:begin], object_pairs_hook=_once)
    stored = {name: _place(**about) for name, about in head.items()}
    if set(stored) != {HEAD, *(str(number) for number in range(len(stored) - 1))}:
        raise ValueError("tensors are numbered")
    reached = 0
    for place in sorted(stored.values(), key=lambda place: (place.start, place.end)):
        if place.start != reached:
            raise ValueError("tensors lie one behind the other")
        reached = place.end
    if reached != len(data) - begin:
        raise ValueError("tensors fill the archive")
    return stored, begin


def _place(dtype: str, shape: list[int], data_offsets: list[int]) -> Stored:
    """From the head's words, which may be of any other types."""
    start, end = data_offsets
    numbers = [*shape, start, end]
    if len(shape) > MOST_DIMENSIONS or not all(type(n) is int and 0 <= n < 2**62 for n in numbers):
        raise ValueError("shapes and places are numbers")
    if end - start != math.prod(shape) * np.dtype(TYPES[dtype]).itemsize:
        raise ValueError("a tensor has the bytes of its shape")
    return Stored(TYPES[dtype], tuple(shape), start, end)


def _entries(data: bytes, head: Stored, begin: int, largest: int) -> list[Entry]:
    if head.dtype != "uint8" or head.end - head.start > largest:
        raise ValueError("no head of this size")
    rows = json.loads(data[begin + head.start : begin + head.end], object_pairs_hook=_once)
    entries = [Entry(*entry) for entry in rows]
    for group, name, _, _ in entries:
        if not (_is_name(group) and _is_name(name)) or (group is None and name is None):
            raise ValueError("names are texts")
    return entries


def _check_uses(entries: Sequence[Entry], stored: Mapping[str, Stored]) -> None:
    """Each stored tensor belongs to one name: many names for one would multiply it."""
    used = [entry.value for entry in entries if entry.name is not None and entry.kind != "plain"]
    if len(used) != len(stored) or set(used) != set(stored):
        raise ValueError("each tensor has one name")
    for entry in entries:
        if entry.name is None or entry.kind == "plain":
            _plain(entry.value)
            continue
        about = stored[str(entry.value)]
        if entry.kind not in KINDS:
            raise ValueError("no such kind")
        form = _narrowed(entry)
        if form and about.dtype != narrow_numbers.STORED[form]:
            raise ValueError("a form has its dtype")
        if entry.kind.endswith("number") and about.shape:
            raise ValueError("a number has no shape")
    small = {entry[:2]: stored[str(entry.value)] for entry in entries if _narrowed(entry) == "int8"}
    scales = [entry for entry in entries if entry.kind == SCALES]
    if len(scales) != len(small):
        raise ValueError("int8 has scales")
    for entry in scales:
        about, blocks = stored[str(entry.value)], narrow_numbers.blocks(small[entry[:2]].shape)
        if (about.dtype, about.shape) != ("float32", (blocks,)):
            raise ValueError("a scale is for a block")


def _check_declared(
    entries: Sequence[Entry], stored: Mapping[str, Stored], declared: Mapping[str, Spec]
) -> None:
    """The same names, shapes and dtypes, of arrays only; a reason that may stand in a log."""
    entries = [entry for entry in entries if entry.kind != SCALES]
    named = {
        str(e.name) if e.group is None else f"{e.group}{SEPARATOR}{e.name}": e for e in entries
    }
    if len(named) < len(entries):
        raise Undeclared("the update has two things of one name")
    reason = undeclared({name: _form(entry, stored) for name, entry in named.items()}, declared)
    if reason is not None:
        raise Undeclared(reason)


def _form(entry: Entry, stored: Mapping[str, Stored]) -> Spec | str:
    """Shape and dtype of what it will be; a word for what is no array."""
    if not entry.kind.endswith("array"):
        return f"{entry.kind} value"
    about = stored[str(entry.value)]
    return Spec(about.shape, "float32" if _narrowed(entry) else about.dtype)


def _narrowed(entry: Entry) -> str:
    """The form that it travels in; empty for its own."""
    form, _, kind = entry.kind.partition(" ")
    return form if kind else ""


def _leaf(
    entry: Entry, scales: Entry | None, data: bytes, stored: Mapping[str, Stored], begin: int
) -> Leaf:
    if entry.kind == "plain":
        return entry.value

    def read(number: Scalar) -> np.ndarray:
        about = stored[str(number)]
        flat = np.frombuffer(data, about.dtype, math.prod(about.shape), begin + about.start)
        if about.dtype == "bool" and (flat.view(np.uint8) > 1).any():
            raise ValueError("true is 1")
        return flat.reshape(about.shape)

    found, form = read(entry.value), _narrowed(entry)
    if form:
        array = narrow_numbers.widen(form, found, None if scales is None else read(scales.value))
    else:
        array = found.copy()  # what arrived need not be kept
    return array[()] if entry.kind.endswith("number") else array


def _once(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("one name for two things")
    return names


def _is_name(value: JsonValue) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= LONGEST_TEXT)


def _plain(value: Scalar) -> Scalar:
    """One number or text, of a size that its kind has elsewhere too."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"a text of more than {LONGEST_TEXT:,} characters")
    elif isinstance(value, int):
        if not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
            raise ValueError("an integer of more than 64 bits")
    elif not (value is None or isinstance(value, float)):
        raise TypeError("a plain value is one number or text")
    return value


def _walk(tensors: Tensors) -> Iterator[tuple[str | None, str | None, Leaf]]:
    """(group, name, leaf) in the order of the dict; an empty group is one with the name None."""
    for name, value in tensors.items():
        if not isinstance(value, dict):
            yield None, name, value
        elif not value:
            yield name, None, None
        for inner, leaf in value.items() if isinstance(value, dict) else ():
            yield name, inner, leaf


def cut(data: bytes, size: int) -> list[bytes]:
    """Pieces of at most `size` bytes, in order."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def checksum(pieces: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def join(pieces: Sequence[bytes], expected: str) -> bytes:
    """The whole, if it is the one that the checksum was made of."""
    if checksum(pieces) != expected:
        raise Damaged("its checksum does not fit its content")
    return b"".join(pieces)
