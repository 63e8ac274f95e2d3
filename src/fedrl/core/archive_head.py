"""What an archive of tensors says that it holds, read and checked before anything large is made.

An archive is a safetensors file: eight bytes with the size of its index, the index (JSON: dtype,
shape and place of each tensor), the tensors' bytes. Its tensors are numbered; one more, `head`, is
JSON that says where each belongs and holds the plain scalars.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.core import narrow_numbers
from fedrl.core.tree import SEPARATOR
from fedrl.core.types import JsonValue, Spec
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
SIZE_BYTES = 8
LARGEST_HEAD = 2**22
"""Bytes of safetensors' index and of our head, where nothing is declared: some 40,000 tensors. JSON
may take twenty times its bytes once it is read."""
HEAD_ROOM = 2**12
LONGEST_TEXT = 2**16
LARGEST_INTEGER = 2**63
Scalar = bool | int | float | str | None
MALFORMED = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError,
    MemoryError,
)  # fmt: skip
"""What reading bytes that are no archive may raise."""


class Damaged(Exception):
    """Bytes that are not what was sent; one line that names no content."""


class Undeclared(Damaged):
    """An archive, but not the one that was declared; in the words of `update_refusal.py`."""


class Stored(NamedTuple):
    """Where a tensor lies in an archive, behind its index."""

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

    @property
    def form(self) -> str:
        """The form that it travels in; empty for its own."""
        form, _, kind = self.kind.partition(" ")
        return form if kind else ""


def malformed(error: BaseException) -> Damaged:
    return Damaged(f"not an archive of tensors ({type(error).__name__})")


def largest(declared: Mapping[str, Spec] | None) -> int:
    """Bytes of an index or head. A character may be written as six, once more for its scales; a
    tensor needs less than the rest."""
    if declared is None:
        return LARGEST_HEAD
    return HEAD_ROOM + sum(384 + 12 * len(n) + 24 * len(s.shape) for n, s in declared.items())


def index_size(beginning: bytes, most: int) -> int:
    """From the archive's first eight bytes."""
    size = int.from_bytes(beginning[:SIZE_BYTES], "little")
    if len(beginning) < SIZE_BYTES or not 0 < size <= most:
        raise ValueError("no index of this size")
    return size


def places(index: bytes) -> tuple[dict[str, Stored], int]:
    """All tensors by their numbers, and the bytes that they take: each its own part of them."""
    about = json.loads(index, object_pairs_hook=_once)
    stored = {name: _place(**words) for name, words in about.items()}
    if set(stored) != {HEAD, *(str(number) for number in range(len(stored) - 1))}:
        raise ValueError("tensors are numbered")
    reached = 0
    for place in in_order(stored).values():
        if place.start != reached:
            raise ValueError("tensors lie one behind the other")
        reached = place.end
    return stored, reached


def in_order(stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """As they lie in the archive."""
    return dict(sorted(stored.items(), key=lambda item: item[1][2:]))


def _place(dtype: str, shape: list[int], data_offsets: list[int]) -> Stored:
    """From the index's words, which may be of any other types."""
    start, end = data_offsets
    numbers = [*shape, start, end]
    if len(shape) > MOST_DIMENSIONS or not all(type(n) is int and 0 <= n < 2**62 for n in numbers):
        raise ValueError("shapes and places are numbers")
    if end - start != math.prod(shape) * np.dtype(TYPES[dtype]).itemsize:
        raise ValueError("a tensor has the bytes of its shape")
    return Stored(TYPES[dtype], tuple(shape), start, end)


def check_head(head: Stored, most: int) -> None:
    if head.dtype != "uint8" or head.end - head.start > most:
        raise ValueError("no head of this size")


def read_entries(
    head: bytes, stored: Mapping[str, Stored], declared: Mapping[str, Spec] | None
) -> list[Entry]:
    """What the stored tensors (without the head) are; with a declaration that and nothing else."""
    rows = json.loads(head, object_pairs_hook=_once)
    entries = [Entry(*entry) for entry in rows]
    for group, name, _, _ in entries:
        if not (_is_name(group) and _is_name(name)) or (group is None and name is None):
            raise ValueError("names are texts")
    _check_uses(entries, stored)
    if declared is not None:
        _check_declared(entries, stored, declared)
    return entries


def _check_uses(entries: Sequence[Entry], stored: Mapping[str, Stored]) -> None:
    """Each stored tensor belongs to one name: many names for one would multiply it."""
    used = [entry.value for entry in entries if entry.name is not None and entry.kind != "plain"]
    if len(used) != len(stored) or set(used) != set(stored):
        raise ValueError("each tensor has one name")
    for entry in entries:
        if entry.name is None or entry.kind == "plain":
            plain(entry.value)
            continue
        about = stored[str(entry.value)]
        if entry.kind not in KINDS:
            raise ValueError("no such kind")
        if entry.form and about.dtype != narrow_numbers.STORED[entry.form]:
            raise ValueError("a form has its dtype")
        if entry.kind.endswith("number") and about.shape:
            raise ValueError("a number has no shape")
    small = {entry[:2]: stored[str(entry.value)] for entry in entries if entry.form == "int8"}
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
    return Spec(about.shape, "float32" if entry.form else about.dtype)


def _once(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("one name for two things")
    return names


def _is_name(value: JsonValue) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= LONGEST_TEXT)


def plain(value: Scalar) -> Scalar:
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
