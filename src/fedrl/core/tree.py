"""Arithmetic on named tensors that are nested at most once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedrl.core.types import Tensors

SEPARATOR = "/"


def leaves(tree: Tensors) -> Iterator[tuple[str, Any]]:
    """`("group/name", leaf)` in sorted order, so that every walk over a tree is the same walk."""
    for name in sorted(tree):
        value = tree[name]
        if isinstance(value, dict):
            for inner in sorted(value):
                yield f"{name}{SEPARATOR}{inner}", value[inner]
        else:
            yield name, value


def flatten(tree: Tensors) -> dict[str, Any]:
    return dict(leaves(tree))


def unflatten(flat: dict[str, Any]) -> Tensors:
    tree: Tensors = {}
    for name, value in flat.items():
        outer, _, inner = name.partition(SEPARATOR)
        if inner:
            tree.setdefault(outer, {})[inner] = value
        else:
            tree[outer] = value
    return tree


def map(function: Callable[..., Any], first: Tensors, *rest: Tensors) -> Tensors:
    """Apply `function` leaf by leaf to trees of the same shape."""
    result: Tensors = {}
    for name, value in first.items():
        if isinstance(value, dict):
            result[name] = map(function, value, *(tree[name] for tree in rest))
        else:
            result[name] = function(value, *(tree[name] for tree in rest))
    return result


def zeros_like(tree: Tensors) -> Tensors:
    return map(np.zeros_like, tree)


def nbytes(tree: Tensors) -> int:
    """Bytes on the wire: arrays as they are, a scalar as eight bytes, a string as its UTF-8."""
    total = 0
    for _, leaf in leaves(tree):
        if isinstance(leaf, np.ndarray | np.generic):
            total += leaf.nbytes
        elif isinstance(leaf, str):
            total += len(leaf.encode())
        else:
            total += 8
    return total


def all_finite(tree: Tensors) -> bool:
    for _, leaf in leaves(tree):
        if isinstance(leaf, np.ndarray | np.generic):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                return False
        elif isinstance(leaf, float) and not math.isfinite(leaf):
            return False
    return True
