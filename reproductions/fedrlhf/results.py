"""What was measured for FedRLHF, read from records: runs by part, and how their numbers are read.

A run's metrics tell of all clients together; its record also has what every client says of its own
policy in a round.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedrl.runs.read import Run
from reproductions.fedrlhf.cells import LINEAR, baseline_key, grid_of, is_genuine
from reproductions.records import Data
from reproductions.results import BySeed, Trained, read_runs
from reproductions.runner import run_name
from reproductions.study import Study
from reproductions.verdicts import number, values

Found = Mapping[str, Trained]

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))
OWN = "personal/weighted"
"""Accuracy of clients' own policies, weighted by examples: no run logs it, two sums tell it."""


@dataclass(frozen=True)
class Results:
    """`parts` are of ratings; `texts` are IMDb's by scale; `bounds` by λ, of all seeds."""

    parts: Mapping[str, Found]
    texts: Mapping[str, Found]
    bounds: Mapping[str, Sequence[Data]]
    genuine: bool
    flipped: int
    baselines: Mapping[tuple[int, int], Data] = field(default_factory=dict)
    """Records of models that are told the stars, by users and seed."""

    @property
    def clients(self) -> list[int]:
        return list(dict.fromkeys(int(one.cell.labels["clients"])
                                  for one in self.parts["movielens"].values()))  # fmt: skip

    def methods(self, clients: int) -> dict[str, Trained]:
        """By method, the table's rows."""
        labelled = [(one.cell.labels, one) for one in self.parts["movielens"].values()]
        return {s["method"]: one for s, one in labelled if s["clients"] == str(clients)}

    @property
    def rounds(self) -> int:
        """The paper's."""
        return next(iter(self.parts["movielens"].values())).cell.rounds

    def whole(self) -> Results:
        """Without what is not there to its end, where what was published stands for it."""
        seeds = len(next(iter(self.parts["tradeoff"].values())).cell.seeds)
        return replace(
            self,
            parts={part: whole_cells(found) for part, found in self.parts.items()},
            texts={
                scale: whole_cells(found) if scale == "full" else found
                for scale, found in self.texts.items()
            },
            bounds={lam: o if len(o) == seeds else [] for lam, o in self.bounds.items()},
        )

    @property
    def crowds(self) -> list[int]:
        """Of the linear policy: numbers of users."""
        both = (*self.parts["recommender"].values(), *self.parts["everybody"].values())
        return list(dict.fromkeys(int(one.cell.labels["clients"]) for one in both))

    def learners(self, clients: int) -> dict[str, Trained]:
        """By learner: the linear policy in its federations, and the paper's network."""
        both = (*self.parts["recommender"].values(), *self.parts["everybody"].values())
        labelled = [(one.cell.labels, one) for one in both if "learner" in one.cell.labels]
        found = {s["learner"]: one for s, one in labelled if s["clients"] == str(clients)}
        return found | ({} if "network" in found or clients not in self.clients
                        else {"network": self.methods(clients)["fedrlhf"]})  # fmt: skip

    def by_answers(self, clients: int) -> dict[int, Trained]:
        """By how many answers each person gives."""
        both = (*self.parts["few_answers"].values(), *self.parts["everybody"].values())
        labelled = [(one.cell.labels, one) for one in both if "answers" in one.cell.labels]
        return {int(s["answers"]): one for s, one in labelled if s["clients"] == str(clients)}

    def told(self, clients: int, model: str, metric: str) -> dict[int, float]:
        """By seed, of a model that is told the stars."""
        of = {seed: one["values"] for (users, seed), one in self.baselines.items()
              if users == clients}  # fmt: skip
        return {seed: float(level) for seed, one in of.items()
                if (level := one[model][metric]) is not None}  # fmt: skip

    @property
    def lams(self) -> list[float]:
        return [float(one.cell.labels["lam"]) for one in self.parts["tradeoff"].values()]


def read_results(study: Study, texts: Mapping[str, Study]) -> Results:
    grid, store = study.grid, study.place.store
    parts = {part: read_runs(store, grid.cells[part])
             for part in ("movielens", "tradeoff", "feedback", *LINEAR)}  # fmt: skip
    parts["feedback"] = kinds(parts["feedback"])
    bounds = {}
    for cell in grid.cells["bound"]:
        several = (store.read("bound", run_name(cell, seed), cell.digest(seed))
                   for seed in cell.seeds)  # fmt: skip
        bounds[cell.labels["lam"]] = [one["values"] for one in several if one is not None]
    told = {}
    for cell in grid.cells["baselines"]:
        for seed in cell.seeds:
            if record := store.read(*baseline_key(grid, cell, seed)):
                told[int(cell.labels["clients"]), seed] = record
    reviews = {name: read_runs(store, one.grid.cells["imdb"]) for name, one in texts.items()}
    return Results(parts, reviews, bounds, is_genuine(grid), grid.tables["flipped"], told)


def whole_cells(found: Found) -> Found:
    return {n: one if one.whole else Trained(one.cell, {}) for n, one in found.items()}


def studies_of_texts(study: Study) -> dict[str, Study]:
    """By scale, those whose reviews a page shows: both of the published ones."""
    names = ("smoke",) if study.scale == "smoke" else ("small", "full")
    folder = study.place.runs.parent
    return {name: replace(study, grid=grid_of(name, folder / name, study.model)) for name in names}


# Numbers of runs


def value(metrics: Mapping[str, float], metric: str) -> float:
    """One round's; NaN where it was not measured."""
    if metric == OWN:
        held = metrics.get("personal/held_out", 0.0)
        return metrics["personal/correct"] / held if held else float("nan")
    return metrics.get(metric, float("nan"))


def at(one: Trained, metric: str, number: int | None = None) -> dict[int, float]:
    """By seed, the metric in a round (the last by default), for runs that reached it."""
    number = one.cell.rounds if number is None else number
    found = {seed: value(run.rounds.get(number, {}), metric) for seed, run in one.runs.items()}
    return {seed: level for seed, level in found.items() if np.isfinite(level)}


def curve(one: Trained, metric: str, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rounds [points] from `first` on and values [seeds, points].

    Of the runs that went to the end; as far as all went, if none did.
    """
    begun = list(one.runs.values())
    if not begun:
        return np.empty(0), np.empty((0, 0))
    runs = [run for run in begun if max(run.rounds) >= one.cell.rounds] or begun
    last = min(max(run.rounds) for run in runs)
    rounds = [
        r for r in range(first, last + 1)
        if all(np.isfinite(value(run.rounds.get(r, {}), metric)) for run in runs)
    ]  # fmt: skip
    return np.array(rounds), np.array([[value(run.rounds[r], metric) for r in rounds]
                                       for run in runs])  # fmt: skip


def by_client(run: Run, metric: str, number: int) -> dict[int, float]:
    """What each client told in one round; those that have no such number are left out."""
    clients, told = run.meta["clients"].get(metric, {}).get(str(number), ((), ()))
    return {client: np.nan if x is None else float(x) for client, x in zip(clients, told)}


def clients_of(one: Trained, metric: str, number: int | None = None) -> dict[int, dict[int, float]]:
    """By seed and client, what clients told in a round, the last by default."""
    number = one.cell.rounds if number is None else number
    found = {seed: by_client(run, metric, number) for seed, run in one.runs.items()}
    return {seed: told for seed, told in found.items() if told}


# Ratings: clients


def by_number(one: Trained, metric: str) -> dict[int, float]:
    """By client number, the mean over seeds after the last round, as the paper gives it.

    Another seed makes another user client 3: a number stands for no person.
    """
    several: dict[int, list[float]] = {}
    for told in clients_of(one, metric).values():
        for client, level in told.items():
            several.setdefault(client, []).append(level)
    return {client: float(np.mean(some)) for client, some in sorted(several.items())}


def medians(one: Trained, metric: str, number: int) -> BySeed:
    """By seed, the middle client's own policy after a round."""
    found = clients_of(one, metric, number)
    return {seed: float(np.median(list(told.values()))) for seed, told in found.items()}


def spreads(one: Trained, number: int) -> BySeed:
    """By seed, the deviation of the clients' own accuracies."""
    found = clients_of(one, "personal/accuracy", number)
    return {seed: float(np.std(list(t.values()))) for seed, t in found.items() if len(t) > 1}


# Ratings: feedback


def kinds(found: Found) -> dict[str, Trained]:
    """The cells of each kind of feedback, which hold one seed each, as one."""
    merged: dict[str, Trained] = {}
    for one in found.values():
        kind = one.cell.labels.get("kind", "none")
        before = merged.get(kind, Trained(replace(one.cell, seeds=()), {}))
        cell = replace(one.cell, name=kind, seeds=before.cell.seeds + one.cell.seeds)
        merged[kind] = Trained(cell, {**before.runs, **one.runs})
    return merged


def personal(one: Trained, metric: str, client: int, others: bool = False) -> BySeed:
    """By seed, a client's own policy in the last round, or the mean of the others' policies."""
    rows = {}
    for seed, told in clients_of(one, metric).items():
        if not others and client in told:
            rows[seed] = told[client]
        elif others and (rest := [x for c, x in told.items() if c != client]):
            rows[seed] = float(np.mean(rest))
    return rows


# As pages show them


def percent(by_seed: BySeed) -> str | None:
    return number(values(by_seed, 100), 1)


def plain(by_seed: BySeed, digits: int = 3) -> str | None:
    return number(values(by_seed), digits)
