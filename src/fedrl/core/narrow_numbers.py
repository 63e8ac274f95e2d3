"""float32 tensors in fewer bytes, for the way: float16, bfloat16, or int8 with a scale per block.

float16     2 bytes: a relative error of at most 2⁻¹¹ for numbers of 6·10⁻⁵ to 65,504, an absolute
            one of 3·10⁻⁸ below
bfloat16    2 bytes: 2⁻⁸ for all that a float32 can be
int8        1.016 bytes: 256 numbers in a row are whole multiples of one 127th of the largest of
            them, so each is off by at most a 254th of that; for changes, not for values

All round to nearest (ties to even), so that the same numbers travel as the same bytes. What does
not fit a form (beyond its largest number; for int8 what is not finite) stays float32: who receives
it can still say what is wrong with it.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

Precision = Literal["float32", "float16", "bfloat16", "int8"]
STORED = {"float16": "float16", "bfloat16": "uint16", "int8": "int8"}
"""The dtype that a form is stored as."""
BLOCK = 256


def narrow(array: np.ndarray, precision: Precision) -> tuple[np.ndarray, ...]:
    """The tensor in this form, with the scales of its blocks behind it if it has such; nothing if
    it stays as it is."""
    if precision == "float32" or array.dtype != np.float32:
        return ()
    if precision == "float16":
        return (array.astype(np.float16),) if _fits(array) else ()
    return _bfloat16(array) if precision == "bfloat16" else _int8(array)


def widen(form: str, stored: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """float32 again; a copy, also where nothing is to be done."""
    if form == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if form == "int8":
        if scales is None:
            raise ValueError("int8 has scales")
        flat = _blocks(stored.astype(np.float32)) * scales[:, None]
        return np.asarray(flat.reshape(-1)[: stored.size].reshape(stored.shape))
    return stored.astype(np.float32)


def blocks(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // BLOCK)


def _fits(array: np.ndarray) -> bool:
    largest = np.finfo(np.float16).max
    return bool((np.abs(array[np.isfinite(array)]) <= largest).all())


def _bfloat16(array: np.ndarray) -> tuple[np.ndarray, ...]:
    """The upper half of the bits, one more where the lower half is more than half of it."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    lost = np.isnan(array)
    upper = (bits >> 16) + ((bits & 0xFFFF) + ((bits >> 16) & 1) > 0x8000)
    upper = np.where(lost, (bits >> 16) | 0x40, upper)  # a NaN stays one
    infinite = (upper & 0x7FFF) == 0x7F80
    if (infinite & np.isfinite(array)).any():
        return ()
    return (upper.astype(np.uint16).reshape(array.shape),)


def _int8(array: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = _blocks(array)
    scales = np.abs(rows).max(1, initial=0.0) / np.float32(127)
    if not np.isfinite(scales).all():
        return ()
    # Of numbers so small that their 127th is none, nothing is left.
    safe = np.where(scales > 0, scales, np.float32(1))
    with np.errstate(over="ignore"):
        whole = np.clip(np.rint(rows / safe[:, None]), -127, 127)
    small = np.where(scales[:, None] > 0, whole, 0).astype(np.int8)
    return small.reshape(-1)[: array.size].reshape(array.shape), scales.astype(np.float32)


def _blocks(array: np.ndarray) -> np.ndarray:
    """[blocks, 256], filled up with zeros."""
    flat = np.zeros(blocks(array.shape) * BLOCK, np.float32)
    flat[: array.size] = array.reshape(-1)
    return flat.reshape(-1, BLOCK)
