"""Limits of settings: the same rule has the same sentence wherever a setting is checked.

`prefix` is what stands before a key where a user writes it: "algorithm.", "world.", "--". NaN keeps
no limit, so it passes none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedrl.core.types import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def at_least_one(settings: DataclassInstance, prefix: str, *keys: str) -> None:
    _check(settings, prefix, keys, lambda value: value >= 1, "it must be at least 1")


def not_negative(settings: DataclassInstance, prefix: str, *keys: str) -> None:
    _check(settings, prefix, keys, lambda value: value >= 0, "it must not be negative")


def above_zero(settings: DataclassInstance, prefix: str, *keys: str) -> None:
    _check(settings, prefix, keys, lambda value: value > 0, "it must be above 0")


def _check(
    settings: DataclassInstance,
    prefix: str,
    keys: tuple[str, ...],
    holds: Callable[[float], bool],
    rule: str,
) -> None:
    for key in keys:
        value = getattr(settings, key)
        if not holds(value):
            raise UserError(f"{prefix}{key} is {value}; {rule}")
