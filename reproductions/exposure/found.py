"""What the records of one cell say: every run attacked with the others as references."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reproductions.exposure.attacks import (
    Bools,
    Floats,
    auc,
    gaussian_hits,
    hits,
    likelihood_ratios,
)
from reproductions.grid import Cell
from reproductions.results import not_begun
from reproductions.runner import run_name
from reproductions.study import Study

ALARMS = 0.01
"""The rate of false alarms at which members are counted."""
LEAST = 3
"""Runs that an attack needs: a target, and references of both kinds."""


@dataclass(frozen=True)
class Found:
    """A cell and the values of its runs by seed."""

    cell: Cell
    runs: Mapping[int, Any]

    @property
    def name(self) -> str:
        return self.cell.name

    def missing(self) -> str:
        left = [seed for seed in self.cell.seeds if seed not in self.runs]
        return not_begun(left) if left else ""

    @cached_property
    def member(self) -> Bools:
        """[runs, records]."""
        return np.array([[bit == "1" for bit in one["member"]] for one in self.runs.values()])

    def statistics(self, view: str) -> Floats:
        return np.array([one["statistics"][view] for one in self.runs.values()], float)

    def auc(self, view: str) -> Floats | None:
        return self._by_run(view, auc)

    def plain_auc(self, view: str) -> Floats | None:
        """Of the statistic as it is, without references."""
        return self._of_statistics(self.statistics(view), auc) if self.runs else None

    def hits(self, view: str) -> Floats | None:
        return self._by_run(view, lambda members, others: hits(members, others, ALARMS))

    def _by_run(self, view: str, judged: Callable[[Floats, Floats], float]) -> Floats | None:
        if len(self.runs) < LEAST:
            return None
        return self._of_statistics(likelihood_ratios(self.statistics(view), self.member), judged)

    def _of_statistics(self, scores: Floats, judged: Callable[[Floats, Floats], float]) -> Floats:
        return np.array([judged(s[m], s[~m]) for s, m in zip(scores, self.member)])

    def bits(self, view: str, of: str = "canaries") -> Floats | None:
        """The mean exposure of a run's secrets, by run."""
        return self._of(lambda one: float(np.mean(one[of][view])))

    def utility(self, metric: str) -> Floats | None:
        return self._of(lambda one: float(one["utility"][metric]))

    def _of(self, told: Callable[[Any], float]) -> Floats | None:
        return np.array([told(one) for one in self.runs.values()]) if self.runs else None

    @property
    def epsilon(self) -> float | None:
        return next((one["epsilon"] for one in self.runs.values()), None)

    @property
    def epsilon_text(self) -> str:
        if self.epsilon is None:
            return "∞"
        return f"{self.epsilon:,.0f}" if self.epsilon >= 100 else f"{self.epsilon:.3g}"

    @property
    def numbers(self) -> str | None:
        return next((f"{one['numbers']:,}" for one in self.runs.values()), None)

    @property
    def length(self) -> str | None:
        """The median over runs of the median in a run."""
        lengths: Sequence[float] = [one["length"] for one in self.runs.values()]
        return f"{np.median(lengths):.3g}" if lengths else None

    def most(self) -> str:
        """What no attack on the noisy sums can exceed."""
        config = self.cell.resolved()
        bound = gaussian_hits(ALARMS, config.privacy.noise, config.rounds)
        return f"{math.floor(1000 * bound + 0.999) / 1000:.3f}"


def read(study: Study, part: str) -> list[Found]:
    """The cells of a part, with the runs that have a record."""
    found = []
    for cell in study.grid.cells[part]:
        runs = {}
        for seed in cell.seeds:
            record = study.place.store.read(part, run_name(cell, seed), cell.digest(seed))
            if record is not None:
                runs[seed] = record["values"]
        found.append(Found(cell, runs))
    return found
