"""Tensors out of an archive's bytes as they come, piece by piece: no piece is kept.

Who reads does not trust who wrote. Both heads come first, and are compared with what was declared
before there is room for any tensor; there is room for one when its first byte comes. What is wrong
is told at the end, when the checksum is known to fit: until then nothing of it is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from fedrl.core import archive_head, narrow_numbers
from fedrl.core.archive_head import HEAD, MALFORMED, SCALES, Damaged, Entry, Stored
from fedrl.core.narrow_numbers import BLOCK, PART
from fedrl.core.types import Spec, Tensors

Bytes = bytes | memoryview


class Unpacker:
    """`feed` it all pieces in order; `finish` has the tensors."""

    def __init__(self, declared: Mapping[str, Spec] | None = None) -> None:
        self.size = 0
        self._declared = declared
        self._most = archive_head.largest(declared)
        self._digest = hashlib.sha256()
        self._beginning = bytearray()
        self._wanted = archive_head.SIZE_BYTES
        self._stored: dict[str, Stored] = {}
        self._filling: Filling | None = None
        self._wrong: Damaged | None = None

    def feed(self, piece: Bytes) -> None:
        """Never raises, whatever the bytes are."""
        self._digest.update(piece)
        self.size += len(piece)
        if self._wrong is not None:
            return
        try:
            self._take(memoryview(piece))
        except Damaged as damage:
            self._wrong = damage.with_traceback(None)
        except MALFORMED as error:
            self._wrong = archive_head.malformed(error)
        if self._wrong is not None:
            self._filling = None

    def finish(self, digest: str) -> Tensors:
        """What was packed, if the checksum is this; `Damaged` if not, or if it is no archive."""
        if self._digest.hexdigest() != digest:
            raise Damaged("its checksum does not fit its content")
        if self._wrong is not None:
            raise self._wrong
        if self._filling is None:
            raise Damaged("not an archive of tensors (it ends early)")
        return finished(self._filling)

    def _take(self, data: memoryview) -> None:
        while self._filling is None and data:
            missing = self._wanted - len(self._beginning)
            self._beginning += data[:missing]
            data = data[missing:]
            if len(self._beginning) == self._wanted:
                self._advance()
        if self._filling is not None:
            self._filling.feed(data)

    def _advance(self) -> None:
        """The size of the index is here, or the index, or the head behind it."""
        start = archive_head.SIZE_BYTES
        if self._wanted == start:
            self._wanted += archive_head.index_size(bytes(self._beginning), self._most)
        elif not self._stored:
            self._stored, _ = archive_head.places(bytes(self._beginning[start:]))
            head = self._stored[HEAD]
            archive_head.check_head(head, self._most)
            if head.start != 0 or head.end == 0:
                raise ValueError("the head comes first")
            self._wanted += head.end
        else:
            head = self._stored.pop(HEAD)
            text = bytes(self._beginning[self._wanted - head.end :])
            entries = archive_head.read_entries(text, self._stored, self._declared)
            self._filling = Filling(entries, self._stored)
            self._beginning = bytearray()


class Filling:
    """An archive's tensors, filled with its bytes in the order in which they lie there."""

    def __init__(self, entries: Sequence[Entry], stored: Mapping[str, Stored]) -> None:
        self._entries = entries
        self._tree = _skeleton(entries)
        self._of = {str(entry.value): entry for entry in entries if _is_stored(entry)}
        self._scales = {entry[:2]: str(entry.value) for entry in entries if entry.kind == SCALES}
        self._small = {entry[:2]: str(entry.value) for entry in entries if entry.form == "int8"}
        self._waiting = list(archive_head.in_order(stored).items())[::-1]
        self._slot: _Slot | None = None
        self._number = ""
        self._done: dict[str, np.ndarray] = {}
        self._next()

    def feed(self, data: memoryview) -> None:
        while data:
            if self._slot is None:
                raise ValueError("tensors fill the archive")
            data = data[self._slot.take(data) :]
            if self._slot.full:
                self._next()

    def _next(self) -> None:
        """Put away the tensor that is full, and go to the next that has bytes."""
        while self._slot is None or self._slot.full:
            if self._slot is not None:
                self._put_away(self._slot.array())
            if not self._waiting:
                self._slot = None
                return
            self._number, about = self._waiting.pop()
            # Scales may come behind what they are for: it stays as small as it came until then.
            form = self._of[self._number].form
            self._slot = _Slot(about, "" if form == "int8" else form)

    def _put_away(self, array: np.ndarray) -> None:
        self._done[self._number] = array
        whose = self._of[self._number][:2]
        small, scales = self._small.get(whose, ""), self._scales.get(whose, "")
        if small in self._done and scales in self._done:
            self._done[small] = _widened(self._done[small], self._done.pop(scales))

    def tensors(self) -> Tensors:
        if self._slot is not None:
            raise ValueError("tensors fill the archive")
        for entry in self._entries:
            inside = self._tree if entry.group is None else self._tree[entry.group]
            if _is_stored(entry) and entry.kind != SCALES:
                array = self._done.pop(str(entry.value))
                inside[str(entry.name)] = array[()] if entry.kind.endswith("number") else array
        return self._tree


def finished(filling: Filling) -> Tensors:
    try:
        return filling.tensors()
    except MALFORMED as error:
        raise archive_head.malformed(error) from error


class _Slot:
    """One stored tensor that is being filled; in another form it is widened part by part."""

    def __init__(self, about: Stored, form: str) -> None:
        self._form = form
        self._made = np.empty(about.shape, "float32" if form else about.dtype)
        self._flat = self._made.reshape(-1)
        self._left = about.end - about.start
        self._reached = 0  # numbers that are widened, or bytes
        dtype = np.dtype(about.dtype)
        self._part = np.empty(min(PART, self._flat.size) if form else 0, dtype)
        self._inside = 0  # bytes of that part

    @property
    def full(self) -> bool:
        return self._left == 0

    def take(self, data: memoryview) -> int:
        """How many of these bytes were its own."""
        target = (self._part if self._form else self._flat).view(np.uint8)
        at = self._inside if self._form else self._reached
        count = min(len(data), len(target) - at, self._left)
        target[at : at + count] = np.frombuffer(data[:count], np.uint8)
        self._left -= count
        if not self._form:
            self._reached += count
            return count
        self._inside += count
        if self._inside == len(target) or self.full:
            numbers = self._inside // self._part.itemsize
            wide = narrow_numbers.widen(self._form, self._part[:numbers])
            self._flat[self._reached : self._reached + numbers] = wide
            self._reached, self._inside = self._reached + numbers, 0
        return count

    def array(self) -> np.ndarray:
        if self._made.dtype == bool and (self._flat.view(np.uint8) > 1).any():
            raise ValueError("true is 1")
        return self._made


def _widened(small: np.ndarray, scales: np.ndarray) -> np.ndarray:
    made, flat = np.empty(small.shape, np.float32), small.reshape(-1)
    wide = made.reshape(-1)
    for part in narrow_numbers.parts(flat.size):
        own = scales[part.start // BLOCK : -(-part.stop // BLOCK)]
        wide[part] = narrow_numbers.widen("int8", flat[part], own)
    return made


def _is_stored(entry: Entry) -> bool:
    return entry.name is not None and entry.kind != "plain"


def _skeleton(entries: Sequence[Entry]) -> Tensors:
    """All names in their order, with the plain values."""
    tree: Tensors = {}
    for entry in entries:
        if entry.kind == SCALES:
            continue
        inside = tree if entry.group is None else tree.setdefault(entry.group, {})
        if not isinstance(inside, dict) or entry.name in inside:
            raise ValueError("one name for two things")
        if entry.name is not None:
            inside[entry.name] = None if _is_stored(entry) else entry.value
    return tree
