"""A node's answer as its objects come from the SuperLink, one after the other.

Objects come in Flower's order: the heading, a chunk, the array that names it, the next chunk, …,
and at last what names them all. A chunk's bytes go on at once, as the next of the body; its size
alone is kept. Whether the chunks were named in that order is seen when everything is here.

Objects name each other, and Flower copies one as often as it is named: a megabyte can name half of
itself a hundred thousand times. So what is named is added up before Flower reads it, and it reads
empty chunks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message.arraychunk import ArrayChunk
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedrl.core.serialization import Damaged
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.adapter.records import Bytes, Unusable, too_large

ROOM = 2**20
"""Bytes of a message beside its pieces, and a 64th of those: names, sizes and the heading."""
NOWHERE = -1
"""No chunk's place."""
EMPTY = ArrayChunk(memoryview(b"")).deflate()


class ArrivedAnswer:
    """`take` every object; `finish` has the content, without the bytes of its pieces."""

    def __init__(self, feed: Callable[[Bytes], None], limit: int) -> None:
        self._feed, self._limit = feed, limit
        self._rest: dict[str, bytes] = {}  # what is no chunk
        self._kinds: dict[str, str] = {}
        self._sizes: dict[str, int] = {}  # of chunks, in the order in which they came
        self._order: list[int] | None = None
        self._kept: dict[int, Bytes] = {}  # chunks that have not gone on everywhere they stand
        self._left: Counter[int] = Counter()  # in how many places they still stand
        self._rest_bytes = 0
        self._given = 0  # chunks that went on, each as often as it is named
        self._bytes = 0
        self._wrong: Exception | None = None

    def take(self, number: str, content: bytes) -> None:
        """`Unusable` as soon as it is too large; what else is wrong is told at the end."""
        if self._wrong is not None:
            return
        try:
            self._take(number, content)
        except Unusable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Flower makes of somebody's bytes
            self._wrong = error.with_traceback(None)

    def _take(self, number: str, content: bytes) -> None:
        kind, _, _ = get_object_head_values_from_object_content(content)
        self._kinds[number] = kind
        if kind == "ArrayChunk":
            self._go_on(len(self._sizes), records.chunk_data(content))
            self._sizes[number] = len(content)
            return
        self._rest[number] = content
        self._rest_bytes += len(content)
        if self._rest_bytes > ROOM + self._limit // 64:
            raise Damaged("too much of it is no update")
        if kind == "ConfigRecord" and not self._sizes:
            order = ConfigRecord.inflate(content).get(records.ORDER)
            if isinstance(order, list):
                self._order = [place if isinstance(place, int) else NOWHERE for place in order]
                self._left = Counter(self._order)

    def _go_on(self, place: int, data: Bytes) -> None:
        """The chunk that came as number `place`, and others before it that stand behind it."""
        if self._order is None:
            self._give(data)
            return
        self._kept[place] = data
        while self._given < len(self._order) and self._order[self._given] in self._kept:
            number = self._order[self._given]
            self._give(self._kept[number])
            self._left[number] -= 1
            if not self._left[number]:
                del self._kept[number]

    def _give(self, data: Bytes) -> None:
        self._bytes += len(data)
        if self._bytes > self._limit:
            raise too_large(self._limit)
        self._given += 1
        self._feed(data)

    def finish(self, number: str) -> RecordDict:
        """What the message holds; `Unusable` if it is none, or not what has gone on."""
        try:
            if self._wrong is not None:
                raise self._wrong
            self._check_named()
            empty = dict.fromkeys(self._sizes, EMPTY)
            message = inflate_object_from_contents(number, {**self._rest, **empty})
        except Damaged as damage:
            raise Unusable(f"its answer is malformed: {damage}") from damage
        except Exception as error:
            raise Unusable("its answer is malformed") from error
        if not isinstance(message, Message):
            raise Unusable("its answer is malformed")
        if message.has_error():
            # Only the code: the text may quote what a client holds.
            raise Unusable(records.reported(message.error.code))
        return message.content

    def _check_named(self) -> None:
        """What stands in the arrays is what has gone on, in this order."""
        chunks: dict[str, list[str]] = {}  # of each array, as often as it names them
        for number, content in self._rest.items():
            if self._kinds[number] == "Array":
                _, children, _ = get_object_head_values_from_object_content(content)
                about = json.loads(get_object_body(content, Array))
                chunks[number] = [children[i] for i in about["arraychunk_ids"]]
        if sum(self._sizes[n] for named in chunks.values() for n in named) > self._limit:
            raise Damaged("its pieces are named too often")
        named: list[str] = []
        for number, content in self._rest.items():
            if self._kinds[number] == "ArrayRecord":
                arrays = json.loads(get_object_body(content, ArrayRecord))
                for name in sorted(arrays):
                    named += chunks[arrays[name]]
                    if len(named) > self._given:
                        raise Damaged("its pieces are in another order")
        gone_on = records.in_sequence(list(self._sizes), self._order)
        if named != gone_on or len(gone_on) != self._given:
            raise Damaged("its pieces are in another order")
