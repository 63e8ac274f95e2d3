"""Named tensors as bytes, and bytes as pieces with a checksum: what travels, without Flower.

The bytes are a safetensors file: no pickle, nothing that runs when it is read. Its tensors are
numbered; one more, `head`, is JSON that says where each belongs and holds the plain scalars. So
what is unpacked has the structure, the types and the bits of what was packed.

Who reads does not trust who wrote. Names, shapes and dtypes are read from the two heads, which are
small, and compared with what was declared before any tensor is restored; each stored tensor is used
once. So what is restored has at most four times the bytes that came (int8), and with a declaration
the bytes that it declares.

float32 tensors may travel in fewer bytes (`narrow_numbers`); they are float32 again where they
arrive. Here an archive is one object, for what is small or lies in a file; on the way models are
`Packed`, whose pieces are made when they are sent, and `Unpacker` takes pieces as they come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from fedrl.core import archive_head
from fedrl.core.archive_head import HEAD as HEAD
from fedrl.core.archive_head import MALFORMED, SIZE_BYTES, Damaged
from fedrl.core.archive_head import Undeclared as Undeclared
from fedrl.core.narrow_numbers import Precision
from fedrl.core.packed import Packed as Packed
from fedrl.core.types import Spec, Tensors
from fedrl.core.unpacker import Bytes, Filling, finished
from fedrl.core.unpacker import Unpacker as Unpacker


def pack(tensors: Tensors, precision: Precision = "float32") -> bytes:
    packed = Packed(tensors, precision)
    return bytes(packed.read(0, packed.size))


def unpack(data: bytes, declared: Mapping[str, Spec] | None = None) -> Tensors:
    """What was packed. With a declaration that and nothing else, or `Damaged`.

    The head may lie anywhere, as in archives that safetensors wrote."""
    try:
        most = archive_head.largest(declared)
        begin = SIZE_BYTES + archive_head.index_size(data[:SIZE_BYTES], most)
        stored, size = archive_head.places(data[SIZE_BYTES:begin])
        if size != len(data) - begin:
            raise ValueError("tensors fill the archive")
        content, head = memoryview(data)[begin:], stored.pop(HEAD)
        archive_head.check_head(head, most)
        entries = archive_head.read_entries(bytes(content[head.start : head.end]), stored, declared)
        filling = Filling(entries, stored)
        filling.feed(content[: head.start])
        filling.feed(content[head.end :])
    except MALFORMED as error:
        raise archive_head.malformed(error) from error
    return finished(filling)


def unpack_pieces(
    pieces: Iterable[Bytes], digest: str, declared: Mapping[str, Spec] | None = None
) -> Tensors:
    """What was packed and cut, if it has this checksum; pieces are taken one by one."""
    unpacker = Unpacker(declared)
    for piece in pieces:
        unpacker.feed(piece)
    return unpacker.finish(digest)


def cut(data: bytes, size: int) -> list[bytes]:
    """Pieces of at most `size` bytes, in order."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def checksum(pieces: Iterable[Bytes]) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def join(pieces: Sequence[bytes], expected: str) -> bytes:
    """The whole, if it is the one that the checksum was made of."""
    if checksum(pieces) != expected:
        raise Damaged("its checksum does not fit its content")
    return b"".join(pieces)
