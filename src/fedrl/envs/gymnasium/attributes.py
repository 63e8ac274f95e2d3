"""Attributes of an environment that a recipe sets: `--world.attributes gravity=5.0:15.0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.envs.gymnasium.settings import Value


def set_attribute(bare: gymnasium.Env[Any, Any], name: str, value: Value, id: str) -> None:
    """On a bare environment that has it; what it cannot be is a line."""
    there = getattr(bare, name, None)
    if not hasattr(bare, name) or name.startswith("__") or callable(there):
        raise UserError(
            f"world.attributes: {id} has no {name!r}; {suggestion(name, _attributes(bare))}"
        )
    if isinstance(value, str) and isinstance(there, int | float | np.number):
        low, dash, high = value.partition("-")
        ends = f"{low}:{high}" if low and dash and high else "LOW:HIGH"
        raise UserError(
            f"world.attributes: {value!r} is no number, and {name} is one; a draw per client is "
            f"{name}={ends}"
        )
    setattr(bare, name, value)


def _attributes(bare: gymnasium.Env[Any, Any]) -> list[str]:
    """Those that may be meant: its own, and the constants of its class; no property is asked."""
    constants = {
        key: None
        for cls in type(bare).__mro__
        for key, value in vars(cls).items()
        if isinstance(value, bool | int | float | str | list | tuple | np.ndarray)
    }
    return [key for key in {**vars(bare), **constants} if not key.startswith("_")]
