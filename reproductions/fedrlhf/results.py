"""What was measured for FedRLHF: runs by part, and how their numbers are read.

A run's lines tell of all clients together; `clients.jsonl` beside them tells what every client says
of its own policy in a round.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.runs.grid import Trained
from fedrl.runs.read import Run
from reproductions.fedrlhf.cells import Scale

Found = Mapping[str, Trained]
BySeed = Mapping[int, float]

OWN = "personal/weighted"
"""Accuracy of clients' own policies, weighted by examples: no run logs it, two sums tell it."""


@dataclass(frozen=True)
class Results:
    """`parts` are of ratings; `texts` are IMDb's by scale."""

    scale: Scale
    parts: Mapping[str, Found]
    texts: Mapping[str, Found]
    genuine: bool
    bound: Sequence[Mapping[str, Any]]

    def runs(self) -> Iterator[Run]:
        for found in (*self.parts.values(), *self.texts.values()):
            for one in found.values():
                yield from one.runs.values()


def value(metrics: Mapping[str, float], metric: str) -> float:
    """One round's; NaN where it was not measured."""
    if metric == OWN:
        held = metrics.get("personal/held_out", 0.0)
        return metrics["personal/correct"] / held if held else float("nan")
    return metrics.get(metric, float("nan"))


def at(one: Trained | None, metric: str, number: int | None = None) -> dict[int, float]:
    """By seed, the metric in a round (the last by default), for runs that reached it."""
    if one is None:
        return {}
    number = one.cell.rounds if number is None else number
    found = {seed: value(run.rounds.get(number, {}), metric) for seed, run in one.runs.items()}
    return {seed: level for seed, level in found.items() if np.isfinite(level)}


def curve(one: Trained | None, metric: str, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rounds [points] from `first` on and values [seeds, points].

    Of the runs that went to the end; as far as all went, if none did.
    """
    begun = list(one.runs.values()) if one else []
    if one is None or not begun:
        return np.empty(0), np.empty((0, 0))
    runs = [run for run in begun if max(run.rounds) >= one.cell.rounds] or begun
    last = min(max(run.rounds) for run in runs)
    rounds = [
        r for r in range(first, last + 1)
        if all(np.isfinite(value(run.rounds.get(r, {}), metric)) for run in runs)
    ]  # fmt: skip
    values = [[value(run.rounds[r], metric) for r in rounds] for run in runs]
    return np.array(rounds), np.array(values)


def client_lines(run: Run) -> Sequence[Mapping[str, Any]]:
    """What clients told, a line per client and round."""
    path = run.path / "clients.jsonl"
    return _lines(path, path.stat().st_size)


@cache
def _lines(path: Path, size: int) -> Sequence[Mapping[str, Any]]:
    """Read once: a page asks for every round and metric, and a file only grows."""
    del size
    lines = path.read_text(encoding="utf-8").splitlines()
    read = [json.loads(line) for line in lines if line.endswith("}")]
    return [line for line in read if line["status"] == "ok"]


def by_client(run: Run, metric: str, number: int) -> dict[int, float]:
    """What each client told in one round; those that have no such number are left out."""
    return {
        line["client"]: float(line[metric])
        for line in client_lines(run)
        if line["round"] == number and metric in line
    }


def merged(found: Found, prefix: str, seeds: Sequence[int]) -> Trained:
    """Cells that hold one seed each, as one."""
    several = {seed: found[f"{prefix}-{seed}"] for seed in seeds}
    runs = {seed: one.runs[seed] for seed, one in several.items() if seed in one.runs}
    return Trained(several[seeds[0]].cell, runs)
