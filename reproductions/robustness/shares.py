"""What a rule keeps under an attack: of the clean result, and of what the clean run had learned.

Clean is the mean where nobody lies. The first share is the one that is judged; the second tells
more where an agent that learns nothing is already good: whoever keeps 90% of the result by staying
at the start has defended nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reproductions.results import BySeed, Trained

CLEAN = "clean"
"""The column in which nobody lies."""
LINE = 0.9
"""The share of the clean result that counts as kept."""


@dataclass(frozen=True)
class Board:
    """One world's runs: every rule in every column."""

    title: str
    metric: str
    found: Mapping[str, Trained]
    rules: Sequence[str]
    attacks: Sequence[str]

    @property
    def whole(self) -> bool:
        return all(one.whole for one in self.found.values())

    def result(self, rule: str, attack: str = CLEAN) -> dict[int, float]:
        """By seed, for the runs that went to their end."""
        return self.found[f"{rule}-{attack}"].value(self.metric)

    def start(self) -> dict[int, float]:
        """By seed, before anybody has learned."""
        return self.found[f"mean-{CLEAN}"].first(self.metric)

    def kept(self, rule: str, attack: str) -> float:
        """Of the mean's clean result, over the seeds that both have; NaN if there are none."""
        return _share(self.result(rule, attack), self.result("mean"), {})

    def gained(self, rule: str, attack: str) -> float:
        """Of what the mean gains over the start where nobody lies; below 0 it got worse."""
        return _share(self.result(rule, attack), self.result("mean"), self.start())

    def worst(self, rule: str, attack: str) -> float:
        """What is kept of the clean result in the seed in which that is least."""
        ours, clean = self.result(rule, attack), self.result("mean")
        common = [seed for seed in set(ours) & set(clean) if clean[seed]]
        return min((ours[seed] / clean[seed] for seed in common), default=float("nan"))

    def holding(self, attack: str) -> list[str]:
        """The rules that keep LINE of the clean result, the mean included."""
        return [rule for rule in self.rules if self.kept(rule, attack) >= LINE]

    def best(self, attack: str) -> str | None:
        """The rule, the mean aside, that keeps most; nothing if no run is there."""
        shares = {rule: self.kept(rule, attack) for rule in self.rules if rule != "mean"}
        there = {rule: share for rule, share in shares.items() if np.isfinite(share)}
        return max(there, key=lambda rule: there[rule], default=None)

    def always(self) -> list[str]:
        """The rules that keep LINE whatever the attack."""
        return [r for r in self.rules if all(self.kept(r, a) >= LINE for a in self.attacks)]


def _share(ours: BySeed, clean: BySeed, start: BySeed) -> float:
    """Of means over common seeds: a single seed that gains next to nothing cannot blow it up."""
    seeds = sorted(set(ours) & set(clean))
    if not seeds:
        return float("nan")
    a, b, c = (np.mean([one.get(s, 0.0) for s in seeds]) for one in (ours, clean, start))
    return float((a - c) / (b - c)) if b != c else float("nan")  # nothing there to keep


def percent(share: float) -> int:
    """Rounded down: 90 has reached the line."""
    return math.floor(100 * share + 1e-9)
