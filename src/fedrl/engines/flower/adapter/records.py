"""A heading and pieces of bytes as the content of a Flower message, and back.

Flower has ways to send arrays as pickles or `.npy` files and to read them by what the sender says
they are. None is used: pieces are raw bytes under a type name of ours, and anything else that
arrives is refused unread.

Each piece is an object of its own on its way, and so is everything that leads to it: six requests
for the smallest body, each of them signed and checked. What is small lies in the heading's record
instead.

A message comes as objects that name each other, and Flower copies an object as often as it is
named: a megabyte can name half of itself a hundred thousand times. So they are added up first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedrl.core.serialization import Damaged

Content = RecordDict
"""What a message holds; made by `content` and read by `opened`, and by nobody else."""
Body = ArrayRecord | list[bytes]
HEADING, BODY = "fedrl", "pieces"
SMALL = 2**15
"""Bytes of a body that lies in the heading's record."""
RAW = "fedrl.bytes"
DIGITS = 8
ROOM = 2**20
"""Bytes of a message beside its pieces, and a 64th of those: names, sizes and the heading."""


class Unusable(Exception):
    """An answer that is no message of a node, and why, in one line."""


def body(pieces: Sequence[bytes]) -> Body:
    """Made once for all who get the same: Flower then stores it once, if it is not small."""
    if sum(map(len, pieces)) <= SMALL:
        return list(pieces)
    named = {
        f"{number:0{DIGITS}}": Array("uint8", (len(piece),), RAW, piece)
        for number, piece in enumerate(pieces)
    }
    return ArrayRecord(named)


def content(heading: str, pieces: Body | None = None) -> RecordDict:
    if isinstance(pieces, ArrayRecord):
        return RecordDict({HEADING: ConfigRecord({"text": heading}), BODY: pieces})
    beside = {BODY: pieces} if pieces else {}
    return RecordDict({HEADING: ConfigRecord({"text": heading, **beside})})


def opened(records: RecordDict) -> tuple[str, list[bytes]]:
    """The heading and the pieces in order."""
    heading, pieces = records.get(HEADING), records.get(BODY)
    text = heading.get("text") if isinstance(heading, ConfigRecord) else None
    if not isinstance(heading, ConfigRecord) or not isinstance(text, str):
        raise Damaged("not a message of fedrl")
    if pieces is None:
        return text, _small(heading.get(BODY, []))
    if not isinstance(pieces, ArrayRecord) or BODY in heading:
        raise Damaged("its pieces are not bytes")
    arrays = [pieces[name] for name in sorted(pieces)]
    if any(array.stype != RAW for array in arrays):
        raise Damaged("its pieces are not bytes")
    return text, [bytes(array.data) for array in arrays]


def _small(pieces: object) -> list[bytes]:
    if not isinstance(pieces, list) or not all(isinstance(piece, bytes) for piece in pieces):
        raise Damaged("its pieces are not bytes")
    return pieces


def check(objects: Mapping[str, bytes], limit: int) -> None:
    """Refuse objects of which Flower would make more than `limit` bytes of arrays."""
    chunks: dict[str, int] = {}
    arrays: list[list[str]] = []  # the chunks of each, as often as it names them
    rest = 0
    for number, content in objects.items():
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind == "ArrayChunk":
            chunks[number] = len(content)
            continue
        rest += len(content)
        if rest > ROOM + limit // 64:
            raise Damaged("too much of it is no update")
        if kind == "Array":
            about = json.loads(get_object_body(content, Array))
            arrays.append([children[i] for i in about["arraychunk_ids"]])
    if sum(chunks[number] for named in arrays for number in named) > limit:
        raise Damaged("its pieces are named too often")


def assembled(number: str, parts: Mapping[str, bytes], limit: int) -> RecordDict:
    """What a message that came in these parts holds, if that is no more than `limit` bytes."""
    try:
        check(parts, limit)
        message = inflate_object_from_contents(number, dict(parts))
    except Damaged as damage:
        raise Unusable(f"its answer is malformed: {damage}") from damage
    except Exception as error:
        raise Unusable("its answer is malformed") from error
    if not isinstance(message, Message):
        raise Unusable("its answer is malformed")
    # Flower carries equal pieces once: a small message could name one of them a million times.
    if message.has_content() and _size(message.content) > limit:
        raise too_large(limit)
    if message.has_error():
        # Only the code: the text may quote what a client holds.
        code = message.error.code
        raise Unusable(_reported(code))
    return message.content


def too_large(limit: int) -> Unusable:
    return Unusable(f"its answer is larger than the {limit:,} bytes that its method may send")


def _size(content: RecordDict) -> int:
    """Bytes of its arrays, one by one."""
    return sum(len(a.data) for record in content.array_records.values() for a in record.values())


def _reported(code: int) -> str:
    return f"Flower reports error {code} ({_meaning(code)})"


def _meaning(code: int) -> str:
    names = {value: name for name, value in vars(ErrorCode).items() if name.isupper()}
    return names.get(code, "unknown").replace("_", " ").lower()


NODE_GONE = _reported(ErrorCode.NODE_UNAVAILABLE)
"""The reason of a client whose node is not there any more."""
