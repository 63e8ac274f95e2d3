"""A heading and pieces of bytes as the content of a Flower message, and back.

Flower has ways to send arrays as pickles or `.npy` files and to read them by what the sender says
they are. None is used: pieces are raw bytes under a type name of ours, and anything else that
arrives is refused unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedrl.engines.flower.framing import Damaged

HEADING, BODY = "fedrl", "pieces"
RAW = "fedrl.bytes"
DIGITS = 8


def body(pieces: Sequence[bytes]) -> ArrayRecord:
    """Made once for all who get the same: Flower then stores it once."""
    named = {
        f"{number:0{DIGITS}}": Array("uint8", (len(piece),), RAW, piece)
        for number, piece in enumerate(pieces)
    }
    return ArrayRecord(named)


def content(heading: str, pieces: ArrayRecord | None = None) -> RecordDict:
    records: dict[str, Any] = {HEADING: ConfigRecord({"text": heading})}
    if pieces is not None:
        records[BODY] = pieces
    return RecordDict(records)


def opened(records: RecordDict) -> tuple[str, list[bytes]]:
    """The heading and the pieces in order."""
    heading, pieces = records.get(HEADING), records.get(BODY)
    text = heading.get("text") if isinstance(heading, ConfigRecord) else None
    if not isinstance(text, str):
        raise Damaged("not a message of fedrl")
    if pieces is None:
        return text, []
    if not isinstance(pieces, ArrayRecord):
        raise Damaged("its pieces are not bytes")
    arrays = [pieces[name] for name in sorted(pieces)]
    if any(array.stype != RAW for array in arrays):
        raise Damaged("its pieces are not bytes")
    return text, [bytes(array.data) for array in arrays]
