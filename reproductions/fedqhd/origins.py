"""Where FedQHD's numbers come from: the records behind each part of its page."""

from __future__ import annotations

from pathlib import Path

from fedrl.core.types import Tables
from reproductions.fedqhd import theory
from reproductions.fedqhd.measuring import earlier_tries, measurements
from reproductions.fedqhd.results import Results
from reproductions.results import read_runs
from reproductions.study import Study

Recorded = dict[str, list[Tables]]


def provenance(study: Study, results: Results) -> tuple[Recorded, dict[str, int]]:
    """By part, its records and how many there are to be."""
    recorded: Recorded = {part: list(found) for part, found in study.records().items()}
    planned, store, plan = study.planned(), study.place.store, results.plan
    recorded["tuning"], planned["tuning"] = trials(study, results)
    if before := list(earlier_tries(study).values()):
        recorded["tuning, earlier"], planned["tuning, earlier"] = before, len(before)
    if results.full:
        full = "table, the paper's sizes"
        runs = [r for one in results.full.values() for r in one.runs.values()]
        recorded[full] = [run.meta for run in runs]
        planned[full] = sum(len(one.cell.seeds) for one in results.full.values())
    for part in ("dimension", "anchors"):
        keys = [(part, m.name, m.digest) for m in measurements(plan, part, Path())]
        recorded[f"{part}, errors"] = [r for key in keys if (r := store.read(*key))]
        planned[f"{part}, errors"] = len(keys)
    recorded["theorems"] = list(results.theorems)
    planned["theorems"] = sum(1 for _ in theory.draws(plan.sizes.draws))
    return recorded, planned


def trials(study: Study, results: Results) -> tuple[list[Tables], int]:
    """Records of tries, and how many there are to be as far as that is known."""
    found, missing = list[Tables](), 0
    for (task, name), at in results.tuned.items():
        method, _, encoders = name.rpartition("-")
        stages = ((at.screened, True), (at.full, False))
        cells = [
            results.plan.trial(task, method, encoders, one.settings, screening)
            for tried, screening in stages
            for one in tried
        ]
        read = read_runs(study.place.store, cells).values()
        found += [run.meta for one in read for run in one.runs.values()]
        missing += sum(len(cell.seeds) for cell in at.missing)
    return found, len(found) + missing
