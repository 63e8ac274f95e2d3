"""The learning rate over a run's epochs: constant, or falling along a line or a cosine to 0.

    n of N epochs, the first W of them warm-up        x = (n − W) / (N − W)
    n < W      (n + 1) / W
    constant   1
    linear     1 − x
    cosine     (1 + cos πx) / 2

N counts the epochs of all rounds, whoever takes part in them: every client of a round steps with
the same rate. The share is a function of the round and of the epoch in it and nothing else, so a
run that is resumed goes on where it was, and a client needs no state for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class LearningRates:
    """Of a whole run."""

    schedule: Schedule
    rounds: int
    epochs: int  # per round
    warmup: int = 0  # rounds in which the rate rises to its highest

    def share(self, round: int, epoch: int) -> float:
        """What the rate is of its highest; rounds count from 1, epochs from 0."""
        now = (max(round, 1) - 1) * self.epochs + epoch
        rising, total = self.warmup * self.epochs, self.rounds * self.epochs
        if now < rising:
            return (now + 1) / rising
        if self.schedule == "constant":
            return 1.0
        done = min((now - rising) / max(total - rising, 1), 1.0)
        return 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
