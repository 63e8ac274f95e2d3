"""The table `[flower]` of a recipe: how messages travel, for how long to wait."""

from __future__ import annotations

from dataclasses import dataclass

from fedrl.core.limits import not_negative
from fedrl.core.types import UserError

SMALLEST_PIECE_MB = 0.25
LARGEST_PIECE_MB = 32.0
"""The SuperLink that fedrl starts refuses larger requests."""


@dataclass(frozen=True)
class Settings:
    """How broadcasts and updates travel; only read by engine = "flower"."""

    # Send float32 tensors as float16, both ways (in a secure sum only down): half the bytes, three
    # decimal digits. Tensors with numbers beyond 65,504 stay as they are.
    half: bool = False
    # Largest piece of a message, in MB; Flower carries every piece by itself.
    piece_mb: float = 4.0
    # Keep the algorithm loaded on the nodes between rounds; false builds it for every message.
    warm: bool = True
    # Seconds to wait for the nodes of clients that are not connected, once per absence.
    wait: float = 120.0
    # Seconds without a SuperLink after which the run stops with its checkpoint.
    patience: float = 600.0

    def __post_init__(self) -> None:
        not_negative(self, "flower.", "wait", "patience")
        if not SMALLEST_PIECE_MB <= self.piece_mb <= LARGEST_PIECE_MB:
            raise UserError(
                f"flower.piece_mb is {self.piece_mb:g}; it lies between {SMALLEST_PIECE_MB:g} and "
                f"{LARGEST_PIECE_MB:g}"
            )
