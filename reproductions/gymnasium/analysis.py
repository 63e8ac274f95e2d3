"""The page that compares methods of every family in Gymnasium's own environments.

This is no paper's: it shows what fedrl does in worlds that it did not write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrl.core.types import Json
from fedrl.report import plots
from fedrl.report.method_colours import styles
from reproductions.pages import Page, Row
from reproductions.results import Trained, curve, late_rounds
from reproductions.runner import Task, playable, tasks_of
from reproductions.study import Study
from reproductions.verdicts import number, values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "eval/return"
TUNING = 2
"""Seeds below this choose the step size; the others are reported."""


@dataclass(frozen=True)
class Method:
    """One method in one environment, with every step size that was tried."""

    title: str
    tried: Mapping[str, Trained]

    def chosen(self) -> str | None:
        """The step size that is best on the tuning seeds, once all were run to their end."""
        scores = {lr: _of(trained.value(METRIC), tuning=True) for lr, trained in self.tried.items()}
        if not all(len(each) == TUNING for each in scores.values()):
            return None
        return max(scores, key=lambda lr: float(np.mean(list(scores[lr].values()))))

    def result(self) -> dict[int, float]:
        """By test seed, with the chosen step size."""
        return self.tested().value(METRIC)

    def tested(self) -> Trained:
        """The test seeds' runs with the chosen step size; none before there is one."""
        lr = self.chosen()
        trained = self.tried[lr or next(iter(self.tried))]
        return Trained(trained.cell, _of(trained.runs, tuning=False) if lr else {})

    def once(self) -> bool:
        """Whether one evaluation alone is late enough to count."""
        trained = self.tested()
        cell = trained.cell
        late = [late_rounds(run, METRIC, cell.rounds, cell) for run in trained.runs.values()]
        return any(len(rounds) == 1 for rounds in late)

    def edge(self) -> bool:
        """Whether the chosen step size is the smallest or the largest that was tried."""
        tried = list(self.tried)
        return len(tried) > 1 and self.chosen() in (tried[0], tried[-1])


def _of(by_seed: Mapping[int, object], tuning: bool) -> dict:
    return {seed: found for seed, found in by_seed.items() if (seed < TUNING) == tuning}


def methods(study: Study, part: str, found: Mapping[str, Trained]) -> dict[str, Method]:
    titles = study.grid.tables["titles"]
    tried: dict[str, dict[str, Trained]] = {}
    for cell in study.grid.cells[part]:
        labels = cell.labels
        tried.setdefault(labels["method"], {})[labels["lr"]] = found[cell.name]
    return {name: Method(titles[name], by_lr) for name, by_lr in tried.items()}


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    """Tuning seeds of every step size; test seeds of those that they chose, once all are there."""
    wanted = [cell for part in parts for cell in trimmed(study).grid.cells[part]]
    return tasks_of(playable(wanted, study.absent), study.grid, study.place)


def trimmed(study: Study) -> Study:
    """The study without the test seeds of step sizes that were not chosen."""
    found, kept = study.runs(), {}
    for part, cells in study.grid.cells.items():
        chosen = {n: method.chosen() for n, method in methods(study, part, found[part]).items()}
        kept[part] = [
            cell
            if cell.labels["lr"] == chosen[cell.labels["method"]]
            else replace(cell, seeds=tuple(seed for seed in cell.seeds if seed < TUNING))
            for cell in cells
        ]
    return replace(study, grid=replace(study.grid, cells=kept))


def write(study: Study, page: Page, path: Path) -> None:
    study = trimmed(study)
    found = study.runs()
    environments = [
        environment(study, page, part, methods(study, part, found[part]))
        for part in study.grid.cells
    ]
    page.write(path, study=study, environments=environments, tuning=TUNING)


def environment(study: Study, page: Page, part: str, compared: Mapping[str, Method]) -> Json:
    """What the template shows of one."""
    about = study.grid.tables["environments"][part]
    head = [f"{about['id']}", "return", "start", "step size", "environment steps"]
    rows = [row(method) for method in compared.values()]
    there = any(method.result() for method in compared.values())
    alt = f"{about['id']}: return over environment steps, mean and 95% interval over test seeds"
    possible = tuple(about.get("possible", (-np.inf, np.inf)))
    draw = partial(figure, about["id"], list(compared.values()), possible)
    return {
        "id": about["id"],
        "best": about["best"],
        "table": page.table(part, head, rows),
        "picture": page.picture(part, alt, draw if there else None) if there else "",
        "once": ", ".join(method.title for method in compared.values() if method.once()),
        "edges": ", ".join(method.title for method in compared.values() if method.edge()),
        "config": study.grid.cells[part][0].resolved(),
    }


def row(method: Method) -> Row:
    tested = method.tested()
    taken = [steps(run.rounds[max(run.rounds)]) for run in tested.runs.values()]
    return [
        method.title,
        number(values(method.result()), 1),
        number(values(tested.first(METRIC)), 1),
        method.chosen(),
        f"{np.mean(taken):,.0f}" if taken else None,
    ]


def figure(title: str, compared: Sequence[Method], possible: tuple[float, float]) -> Figure:
    """Return over environment steps, for the chosen step sizes."""
    x: dict[str, np.ndarray] = {}
    lines: dict[str, np.ndarray] = {}
    for method in compared:
        kept = method.tested()
        at, lines[method.title] = curve([kept], METRIC, kept.cell.rounds)
        taken = [[steps(run.rounds[int(r)]) for r in at] for run in kept.runs.values()]
        x[method.title] = np.mean(taken, axis=0) if taken else np.empty(0)
    panel = plots.Panel(
        f"{title}: return", "environment steps of all clients", x, lines,
        possible=possible, styles=styles(lines),
    )  # fmt: skip
    return plots.curves([panel])


def steps(metrics: Mapping[str, float]) -> float:
    """Of clients, and of a server that plays itself, up to a round."""
    return metrics.get("env/steps", 0.0) + metrics.get("server/env_steps", 0.0)
