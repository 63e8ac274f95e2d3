"""How the step sizes of FedRLHF and of centralized training on reviews are chosen: by the global
reward after the last round, with seeds that no table reports, as many tries for both.

What the grid has chosen is the best by this rule; the page says where it is not, and where the best
lies at an end of what was tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reproductions.fedrlhf.results import Found, at
from reproductions.fedrlhf.reviews import NAMES
from reproductions.pages import Row
from reproductions.results import Trained
from reproductions.verdicts import number


@dataclass(frozen=True)
class Tuning:
    """One learner's tries by step size, and the one that the grid has."""

    learner: str
    tries: Mapping[float, Trained]
    chosen: float

    def rewards(self, lr: float) -> np.ndarray:
        """After the last round, by tuning seed."""
        return np.array(list(at(self.tries[lr], "eval/reward").values()))

    @property
    def done(self) -> bool:
        return all(one.whole for one in self.tries.values())

    @property
    def best(self) -> float:
        """The first of equals."""
        return max(self.tries, key=lambda lr: float(self.rewards(lr).mean()))

    @property
    def at_an_end(self) -> bool:
        return self.best in (min(self.tries), max(self.tries))


def tunings(tried: Found, cells: Found) -> list[Tuning]:
    """Of the parts `tuned` and `imdb`."""
    found: dict[str, dict[float, Trained]] = {}
    for one in tried.values():
        labels = one.cell.labels
        found.setdefault(labels["learner"], {})[float(labels["lr"])] = one
    return [
        Tuning(learner, dict(sorted(tries.items())),
               float(cells[learner].cell.recipe["algorithm"]["lr"]))
        for learner, tries in found.items()
    ]  # fmt: skip


def rows(several: list[Tuning]) -> list[Row]:
    found: list[Row] = []
    for one in several:
        for lr, trained in one.tries.items():
            told = number(one.rewards(lr)) if trained.runs else None
            best = one.done and lr == one.best
            seeds = f"{len(one.rewards(lr))} of {len(trained.cell.seeds)}"
            found.append([f"{NAMES[one.learner]}, {lr:g}", f"**{told}**" if best else told, seeds])
    return found


def remarks(several: list[Tuning]) -> str:
    """Where the rule is not followed yet."""
    open_ = [NAMES[one.learner] for one in several if not one.done]
    other = [f"{NAMES[one.learner]} ({one.best:g})" for one in several
             if one.done and one.best != one.chosen]  # fmt: skip
    ends = [f"{NAMES[one.learner]} ({one.best:g})" for one in several
            if one.done and one.at_an_end]  # fmt: skip
    said = []
    if open_:
        said.append(f"Not tuned to the end: {', '.join(open_)}; the grid's step sizes stand.")
    if other:
        said.append(f"The grid has another than the best: {', '.join(other)}.")
    if ends:
        said.append(f"The best is the smallest or the largest that was tried: {', '.join(ends)}.")
    return " ".join(said)
