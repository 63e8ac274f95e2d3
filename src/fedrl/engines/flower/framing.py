"""Named tensors as bytes, and bytes as pieces with a checksum: what travels, without Flower.

The bytes are a safetensors file: no pickle, nothing that runs when it is read. Its tensors are
numbered; one more, `head`, is JSON that says where each belongs and holds the plain scalars. So
what is unpacked has the structure, the types and the bits of what was packed.

With `half`, a float32 tensor travels as float16 (round to nearest: a relative error of at most
2⁻¹¹ for numbers of 6·10⁻⁵ to 65,504, an absolute one of 3·10⁻⁸ below) and is float32 again where it
arrives. A tensor with a finite number beyond 65,504 stays float32.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fedrl.types import Tensors

HEAD = "head"


class Damaged(Exception):
    """Bytes that are not what was sent; one line that names no content."""


def pack(tensors: Tensors, half: bool = False) -> bytes:
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray] = {}
    entries: list[list[Any]] = []  # [group or null, name, kind, value or number of the tensor]
    for group, name, leaf in _walk(tensors):
        if isinstance(leaf, np.ndarray | np.generic):
            array = np.asarray(leaf, order="C")
            kind = "array" if isinstance(leaf, np.ndarray) else "number"
            if half and array.dtype == np.float32 and _fits(array):
                kind, array = f"half {kind}", array.astype(np.float16)
            number = str(len(arrays))
            arrays[number] = array
            entries.append([group, name, kind, number])
        else:
            entries.append([group, name, "plain", leaf])
    arrays[HEAD] = np.frombuffer(json.dumps(entries).encode(), np.uint8)
    return save(arrays)


def unpack(data: bytes) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        entries = json.loads(arrays.pop(HEAD).tobytes())
        tensors: Tensors = {}
        for group, name, kind, value in entries:
            if not (_is_name(group) and _is_name(name)) or (group is None and name is None):
                raise ValueError("names are texts")
            inside = tensors if group is None else tensors.setdefault(group, {})
            if name is None:
                continue
            if name in inside or not isinstance(inside, dict):
                raise ValueError("one name for two things")
            inside[name] = _plain(value) if kind == "plain" else _restored(arrays[value], kind)
        return tensors
    except (
        SafetensorError, KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError
    ) as error:  # fmt: skip
        raise Damaged(f"not an archive of tensors ({type(error).__name__})") from error


def _is_name(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _plain(value: Any) -> Any:
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise TypeError("a plain value is one number or text")
    return value


def _walk(tensors: Tensors) -> Iterator[tuple[str | None, str | None, Any]]:
    """(group, name, leaf) in the order of the dict; an empty group is one with the name None."""
    for name, value in tensors.items():
        if not isinstance(value, dict):
            yield None, name, value
        elif not value:
            yield name, None, None
        for inner, leaf in value.items() if isinstance(value, dict) else ():
            yield name, inner, leaf


def _fits(array: np.ndarray) -> bool:
    largest = np.finfo(np.float16).max
    return bool((np.abs(array[np.isfinite(array)]) <= largest).all())


def _restored(array: np.ndarray, kind: str) -> Any:
    if kind.startswith("half"):
        array = array.astype(np.float32)
    return array[()] if kind.endswith("number") else array


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
