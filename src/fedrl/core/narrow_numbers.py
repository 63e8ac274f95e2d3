"""float32 tensors in fewer bytes, for the way: float16, bfloat16, or int8 with a scale per block.

float16     2 bytes: a relative error of at most 2⁻¹¹ for numbers of 6·10⁻⁵ to 65,504, an absolute
            one of 3·10⁻⁸ below
bfloat16    2 bytes: 2⁻⁸ for all that a float32 can be
int8        1.016 bytes: 256 numbers in a row are whole multiples of one 127th of the largest of
            them, so each is off by at most a 254th of that; for changes, not for values

All round to nearest (ties to even), so that the same numbers travel as the same bytes. What does
not fit a form (beyond its largest number; for int8 what is not finite) stays float32: who receives
it can still say what is wrong with it.

Tensors are flat here and may be read in parts, in any order: a part has the bits that it has in the
whole, and no form of the whole is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

Precision = Literal["float32", "float16", "bfloat16", "int8"]
STORED = {"float16": "float16", "bfloat16": "uint16", "int8": "int8"}
"""The dtype that a form is stored as."""
BLOCK = 256
PART = 2**16
"""Numbers that are looked at together: their copies stay in the processor's cache."""
INFINITE, ROUNDED_UP = 0x7F800000, 0x7F7F8000
"""Of a float32's bits: an infinite one's, and the least that bfloat16 rounds to that."""


def fits(flat: np.ndarray, precision: Precision) -> bool:
    """Whether this form can have all of these numbers."""
    if precision == "float32" or flat.dtype != np.float32:
        return False
    check = {"float16": _fits_float16, "bfloat16": _fits_bfloat16, "int8": _finite}[precision]
    return all(check(flat[part]) for part in parts(flat.size))


def scales(flat: np.ndarray) -> np.ndarray:
    """A 127th of the largest number of each block."""
    found = np.empty(blocks(flat.shape), np.float32)
    for part in parts(flat.size):
        rows = _blocks(flat[part])
        first = part.start // BLOCK
        found[first : first + len(rows)] = np.abs(rows).max(1) / np.float32(127)
    return found


def narrow(part: np.ndarray, form: str, scales: np.ndarray | None = None) -> np.ndarray:
    """These numbers in a form that fits them; int8 begins where a block does, with its scales."""
    if form == "float16":
        return part.astype(np.float16)
    if form == "bfloat16":
        return _bfloat16(part)
    assert scales is not None
    # Of numbers so small that their 127th is none, nothing is left.
    safe = np.where(scales > 0, scales, np.float32(1))[:, None]
    with np.errstate(over="ignore"):
        whole = np.clip(np.rint(_blocks(part) / safe), -127, 127)
    return np.where(scales[:, None] > 0, whole, 0).astype(np.int8).reshape(-1)[: part.size]


def widen(form: str, part: np.ndarray, scales: np.ndarray | None = None) -> np.ndarray:
    """float32 again; a copy, also where nothing is to be done."""
    if form == "bfloat16":
        return (part.astype(np.uint32) << 16).view(np.float32)
    if form == "int8":
        if scales is None:
            raise ValueError("int8 has scales")
        with np.errstate(over="ignore", invalid="ignore"):  # scales may be anything on their way
            wide = _blocks(part) * scales[:, None]
        return np.asarray(wide.reshape(-1)[: part.size])
    return part.astype(np.float32)


def blocks(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // BLOCK)


def parts(size: int) -> Iterator[slice]:
    """Of so many numbers; each begins where a block does."""
    return (slice(start, min(start + PART, size)) for start in range(0, size, PART))


def _fits_float16(part: np.ndarray) -> bool:
    largest = np.finfo(np.float16).max
    return bool((np.abs(part[np.isfinite(part)]) <= largest).all())


def _fits_bfloat16(part: np.ndarray) -> bool:
    size = part.view(np.uint32) & 0x7FFFFFFF
    return not ((size >= ROUNDED_UP) & (size < INFINITE)).any()


def _finite(part: np.ndarray) -> bool:
    return bool(np.isfinite(part).all())


def _bfloat16(part: np.ndarray) -> np.ndarray:
    """The upper half of the bits, one more where the lower half is more than half of it."""
    bits = part.view(np.uint32)
    upper = bits >> 16
    rounded = upper & 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    lost = np.isnan(part)
    if lost.any():
        rounded[lost] = upper[lost] | 0x40  # a NaN stays one
    return rounded.astype(np.uint16)


def _blocks(part: np.ndarray) -> np.ndarray:
    """[blocks, 256], filled up with zeros."""
    flat = np.zeros(blocks(part.shape) * BLOCK, np.float32)
    flat[: part.size] = part
    return flat.reshape(-1, BLOCK)
