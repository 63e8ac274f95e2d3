"""Theorem 4.1's bound beside what it bounds, measured once per seed and λ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reproductions.records import Data
from reproductions.verdicts import number

TERMS = ("transient", "noise", "feedback", "drift")
COLUMNS = ("gap", "averaged", "now", *TERMS, "paper", "repaired")
CONSTANTS = {"smoothness": "L", "pl": "μ", "gradient": "G", "noise": "σ"}


def column(measured: Sequence[Data], name: str) -> np.ndarray:
    """[seeds, rounds]"""
    return np.array([[row[name] for row in one["rows"]] for one in measured])


def kept(measured: Sequence[Data], name: str) -> bool:
    """Whether a bound is nowhere below the gap that it bounds, nor below that of the mean θ."""
    worst = np.maximum(column(measured, "gap"), column(measured, "averaged"))
    return bool((column(measured, name) >= worst).all())


def row(measured: Sequence[Data], end: int) -> list[str | None]:
    """The terms after the first round or the last; unknown where nothing was measured."""
    return [compact(column(measured, name)[:, end]) if measured else None for name in COLUMNS]


def constants(measured: Sequence[Data]) -> str:
    return ", ".join(
        f"{symbol} = {compact(np.array([one['constants'][name] for one in measured]))}"
        for name, symbol in CONSTANTS.items()
    )


def compact(values: np.ndarray) -> str | None:
    mean = abs(float(values.mean()))
    return number(values, 3 if mean < 1 else 2 if mean < 10 else 0)
