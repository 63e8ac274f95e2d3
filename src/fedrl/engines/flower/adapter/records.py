"""A heading and pieces of bytes as the content of a Flower message, and back.

Flower has ways to send arrays as pickles or `.npy` files and to read them by what the sender says
they are. None is used: pieces are raw bytes under a type name of ours, and anything else that
arrives is refused unread.

Each piece is an object of its own on its way, and so is everything that leads to it: six requests
for the smallest body, each of them signed and checked. What is small lies in the heading's record
instead. A large body is never there as a whole: its pieces are made when they are sent (`sealed`),
taken as they come (`arrived_answers.py`), or fetched when they are read (`incoming`).

Flower names an object by its content, so equal pieces are carried once: the heading then says which
one stands where (`order`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app.message.arraychunk import ArrayChunk
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE, ErrorCode
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_object_body,
    get_object_id,
)

from fedrl.core.serialization import Damaged, Packed

Content = RecordDict
"""What a message holds; made by `content` and read by `opened`, and by nobody else."""
Body = ArrayRecord | list[bytes]
Bytes = bytes | memoryview
HEADING, BODY, ORDER = "fedrl", "pieces", "order"
SMALL = 2**15
"""Bytes of a body that lies in the heading's record."""
RAW = "fedrl.bytes"
DIGITS = 8


class Unusable(Exception):
    """An answer that is no message of a node, and why, in one line."""


class Sealed(NamedTuple):
    """What travels beside a heading, its checksum and its bytes."""

    body: Body
    digest: str
    size: int


NOTHING = Sealed([], "", 0)


class LateChunk(InflatableObject):
    """A chunk of Flower's whose bytes are made, or fetched, when they are wanted."""

    def __init__(self, number: str, read: Callable[[], Bytes]) -> None:
        self._number, self._read = number, read

    @property
    def object_id(self) -> str:
        return self._number

    @property
    def data(self) -> Bytes:
        return self._read()

    def deflate(self) -> bytes:
        return ArrayChunk(memoryview(self.data)).deflate()


# What leaves -------------------------------------------------------------------------------------


def sealed(packed: Packed, piece: int) -> Sealed:
    """Made once for all who get the same: Flower then stores it once, if it is not small."""
    total = hashlib.sha256()
    small = [] if packed.size > SMALL else [bytes(data) for data in packed.pieces(piece)]
    arrays = ArrayRecord()  # filled one by one: made of a dict it would copy what it is given
    for number, start in enumerate(range(0, packed.size, piece)):
        data = small[number] if small else packed.read(start, start + piece)
        total.update(data)
        if not small:
            arrays[_name(number)] = _late(len(data), data, partial(_part, packed, start))
    return Sealed(arrays if arrays else small, total.hexdigest(), packed.size)


def _part(packed: Packed, begin: int, start: int, stop: int) -> Bytes:
    return packed.read(begin + start, begin + stop)


def _late(size: int, data: Bytes, read: Callable[[int, int], Bytes]) -> Array:
    """An array of these bytes that does not keep them: Flower asks for its chunks only."""
    chunks = []
    for start in range(0, size, FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE):
        stop = min(start + FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE, size)
        number = get_object_id(ArrayChunk(memoryview(data)[start:stop]).deflate())
        chunks.append((number, LateChunk(number, partial(read, start, stop))))
    return _of_chunks(size, chunks)


def _of_chunks(size: int, chunks: Sequence[tuple[str, InflatableObject]]) -> Array:
    array = Array("uint8", (size,), RAW, b"")
    array.__dict__["_chunks"] = list(chunks)
    return array


def body(pieces: Sequence[bytes]) -> Body:
    """The same, of pieces that are there."""
    if sum(map(len, pieces)) <= SMALL:
        return list(pieces)
    return ArrayRecord({_name(n): Array("uint8", (len(p),), RAW, p) for n, p in enumerate(pieces)})


def content(heading: str, pieces: Body | None = None) -> RecordDict:
    if isinstance(pieces, ArrayRecord):
        order = _order(pieces)
        beside = {ORDER: order} if order else {}
        # The heading first: objects are carried in this order.
        return RecordDict({HEADING: ConfigRecord({"text": heading, **beside}), BODY: pieces})
    small = {BODY: pieces} if pieces else {}
    return RecordDict({HEADING: ConfigRecord({"text": heading, **small})})


def _order(record: ArrayRecord) -> list[int]:
    """Of all chunks, which of the different ones each is; nothing if no two are equal."""
    numbers = [number for array in record.values() for number, _ in array.slice_array()]
    different = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
    return [different[n] for n in numbers] if len(different) < len(numbers) else []


def _name(number: int) -> str:
    return f"{number:0{DIGITS}}"


# What has arrived --------------------------------------------------------------------------------


def heading(records: RecordDict) -> str:
    return _headed(records)[1]


def opened(records: RecordDict) -> tuple[str, list[bytes]]:
    """The heading and the pieces in order."""
    text, pieces = streamed(records)
    return text, [bytes(piece) for piece in pieces]


def streamed(records: RecordDict) -> tuple[str, Iterator[Bytes]]:
    """The same, piece by piece as they are wanted; what is wrong with the rest is told at once."""
    record, text = _headed(records)
    pieces = records.get(BODY)
    if pieces is None:
        return text, iter(_small(record.get(BODY, [])))
    if not isinstance(pieces, ArrayRecord) or BODY in record:
        raise Damaged("its pieces are not bytes")
    arrays = [pieces[name] for name in sorted(pieces)]
    if any(array.stype != RAW for array in arrays):
        raise Damaged("its pieces are not bytes")
    return text, (piece for array in arrays for piece in _data(array))


class Counted:
    """Pieces, and how many bytes of them were read."""

    def __init__(self, pieces: Iterable[Bytes]) -> None:
        self.pieces, self.bytes = pieces, 0

    def __iter__(self) -> Iterator[Bytes]:
        for piece in self.pieces:
            self.bytes += len(piece)
            yield piece


def _headed(records: RecordDict) -> tuple[ConfigRecord, str]:
    record = records.get(HEADING)
    text = record.get("text") if isinstance(record, ConfigRecord) else None
    if not isinstance(record, ConfigRecord) or not isinstance(text, str):
        raise Damaged("not a message of fedrl")
    return record, text


def _data(array: Array) -> Iterator[Bytes]:
    chunks = [chunk for _, chunk in array.__dict__.get("_chunks", [])]
    late = [chunk for chunk in chunks if isinstance(chunk, LateChunk)]
    return (chunk.data for chunk in late) if late else iter([array.data])


def _small(pieces: object) -> list[bytes]:
    if not isinstance(pieces, list) or not all(isinstance(piece, bytes) for piece in pieces):
        raise Damaged("its pieces are not bytes")
    return pieces


def incoming(tree: ObjectTree, fetch: Callable[[str], bytes], last: Callable[[], None]) -> Content:
    """A message whose objects somebody has: the heading, and pieces that are fetched when they are
    read, once. `last` is called after the last one. Empty if it is no message of fedrl.

    The objects in between are not looked at: the heading has a checksum of the pieces.
    """
    records = tree.children[0].children if len(tree.children) == 1 else []
    heads = [record for record in records if not record.children]
    bodies = [record for record in records if record.children]
    if len(heads) != 1 or len(bodies) > 1:
        return RecordDict()
    try:
        head = ConfigRecord.inflate(fetch(heads[0].object_id))
        numbers = [chunk.object_id for one in bodies for a in one.children for chunk in a.children]
        sequence = in_sequence(list(dict.fromkeys(numbers)), head.get(ORDER))
    except (ValueError, Damaged):
        return RecordDict()
    if not sequence:
        return RecordDict({HEADING: head})

    def read(place: int) -> Bytes:
        data = chunk_data(fetch(sequence[place]))
        if place + 1 == len(sequence):
            last()
        return data

    chunks = [(number, LateChunk(number, partial(read, i))) for i, number in enumerate(sequence)]
    pieces = ArrayRecord()
    pieces[_name(0)] = _of_chunks(0, chunks)
    return RecordDict({HEADING: head, BODY: pieces})


def in_sequence(different: Sequence[str], order: object) -> list[str]:
    """The numbers of all chunks, from those that differ and what the heading says of them."""
    if order is None:
        return list(different)
    if not isinstance(order, list) or not all(
        type(place) is int and 0 <= place < len(different) for place in order
    ):
        raise Damaged("its pieces have no order")
    return [different[place] for place in order]


def chunk_data(content: bytes) -> Bytes:
    """Of one chunk's object."""
    try:
        return get_object_body(content, ArrayChunk)
    except ValueError as error:
        raise Damaged("its pieces are not bytes") from error


def too_large(limit: int) -> Unusable:
    return Unusable(f"its answer is larger than the {limit:,} bytes that its method may send")


def reported(code: int) -> str:
    return f"Flower reports error {code} ({_meaning(code)})"


def _meaning(code: int) -> str:
    names = {value: name for name, value in vars(ErrorCode).items() if name.isupper()}
    return names.get(code, "unknown").replace("_", " ").lower()


NODE_GONE = reported(ErrorCode.NODE_UNAVAILABLE)
"""The reason of a client whose node is not there any more."""
