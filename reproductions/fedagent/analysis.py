"""FedAgent's reproduction: which cells a scale has, what computes them, and its page.

The scales `small` and `full` share one page, `tables.py`; `paper` has its own, `table1.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reproductions.fedagent import models, table1
from reproductions.fedagent.claims import MARGIN
from reproductions.fedagent.environment import environment
from reproductions.fedagent.optimizer import optimizer
from reproductions.fedagent.sections import Sections, judged, marked_rows, planned
from reproductions.fedagent.side_parts import SideParts
from reproductions.fedagent.statements import statements
from reproductions.fedagent.tables import Analysis
from reproductions.fedagent.tuning import tuning
from reproductions.grid import Grid
from reproductions.pages import Page
from reproductions.results import Runs
from reproductions.runner import Task
from reproductions.study import Study, prepare

__all__ = ["cells", "statements", "tasks", "write"]


def cells(scale: str, folder: Path, model: str) -> Grid:
    return table1.read() if scale == table1.SCALE else models.read_cells(scale, folder, model)


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    planned = table1.tasks if study.scale == table1.SCALE else models.tasks
    return planned(study, list(parts))


def write(study: Study, page: Page, path: Path) -> None:
    """One page has both published scales, whichever is asked for."""
    if study.scale == table1.SCALE:
        table1.write(study, page, path)
        return
    studies = {}
    for name in ("smoke" if study.scale == "smoke" else "small", "full"):
        runs, records = study.place.runs.parent / name, study.place.store.folder
        same = name == study.scale
        studies[name] = study if same else prepare(study.paper, name, runs, records, 1, study.model)
    found = Analysis(study.scale, studies, page)
    page.write(
        path,
        a=found,
        sides=SideParts(found),
        tuning=tuning(found.parts.get("tuning"), page),
        optimizer=optimizer(found.parts, page),
        recorded=recorded(found.parts),
        sections=Sections(),
        judged=judged,
        marked_rows=marked_rows,
        planned=planned(found.found, found.gone),
        environment=environment(found.parts, page),
        rules=study.grid.tables["rules_commit"],
        added=study.grid.tables["added"],
        margin=f"{MARGIN:g}",
    )


def recorded(parts: Mapping[str, Runs]) -> str:
    """How many of the planned runs have a record, and of which parts."""
    counts = {
        part: (sum(len(one.runs) for one in found.values()),
               sum(len(one.cell.seeds) for one in found.values()))
        for part, found in parts.items()
    }  # fmt: skip
    there = ", ".join(f"{part} ({n} of {planned})" for part, (n, planned) in counts.items() if n)
    have, planned = (sum(one) for one in zip(*counts.values(), strict=True))
    return f"{have} of {planned} planned runs have a record here: {there or 'none'}."
