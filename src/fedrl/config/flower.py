"""The table `[flower]` of a recipe: how messages travel, for how long to wait."""

from __future__ import annotations

import typing
from dataclasses import dataclass

from fedrl.core.limits import not_negative, one_of
from fedrl.core.narrow_numbers import Precision
from fedrl.core.types import UserError

SMALLEST_PIECE_MB = 0.25
LARGEST_PIECE_MB = 32.0
"""The SuperLink that fedrl starts refuses larger requests."""


@dataclass(frozen=True)
class Settings:
    """How broadcasts and updates travel; only read by engine = "flower"."""

    # What float32 tensors travel as, both ways (in a secure sum only down): float16 and bfloat16
    # are half the bytes; int8 is a quarter of an update's, for methods that send changes, and goes
    # down as float16. Tensors with numbers that a form cannot have stay as they are.
    precision: Precision = "float32"
    # Largest piece of a message, in MB; Flower carries every piece by itself.
    piece_mb: float = 4.0
    # Keep the algorithm loaded on the nodes between rounds; false builds it for every message.
    warm: bool = True
    # Seconds to wait for the nodes of clients that are not connected, once per absence.
    wait: float = 120.0
    # Seconds without a SuperLink after which the run stops with its checkpoint.
    patience: float = 600.0

    @property
    def down(self) -> Precision:
        """Of broadcasts, which are values."""
        return "float16" if self.precision == "int8" else self.precision

    def __post_init__(self) -> None:
        one_of("flower.precision", self.precision, typing.get_args(Precision))
        not_negative(self, "flower.", "wait", "patience")
        if not SMALLEST_PIECE_MB <= self.piece_mb <= LARGEST_PIECE_MB:
            raise UserError(
                f"flower.piece_mb is {self.piece_mb:g}; it lies between {SMALLEST_PIECE_MB:g} and "
                f"{LARGEST_PIECE_MB:g}"
            )
