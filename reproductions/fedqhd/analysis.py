"""FedQHD's page: ours with intervals, the paper's numbers, and computed verdicts, from records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from fedrl.core.types import Json, Tables
from reproductions.fedqhd import choices, figures, gap
from reproductions.fedqhd.claims import claims, figure_claims, reached
from reproductions.fedqhd.measuring import cells, collect, measurements, tasks, tries_records
from reproductions.fedqhd.plan import ENCODERS, Plan
from reproductions.fedqhd.results import (
    PAPER,
    Results,
    by_anchors,
    by_clients,
    by_dimension,
    ended,
    errors,
    policy_gap,
    shown,
    slopes,
    span,
    value,
)
from reproductions.pages import NOT_MEASURED, Page, Row, machine
from reproductions.results import BySeed, Runs, Trained
from reproductions.study import Study
from reproductions.verdicts import gap as difference_of
from reproductions.verdicts import number, signed

__all__ = ["cells", "tasks", "write"]

SHORTEST = 12.0
"""A return on CartPole of always the same push, a little more than nine steps."""
Reader = Callable[[Trained], BySeed]


# The page


def write(study: Study, page: Page, path: Path) -> None:
    a = Analysis(study, collect(study), page)
    page.write(path, study=study, a=a, plan=a.plan, sizes=a.plan.sizes, gap=gap, listed=listed)


@dataclass(frozen=True)
class Analysis:
    """What the page's template shows."""

    study: Study
    results: Results
    page: Page

    @property
    def plan(self) -> Plan:
        return self.results.plan

    @property
    def titles(self) -> list[str]:
        return [f"{title}, {e}" for title in self.plan.tasks.values() for e in ENCODERS]

    def begun(self, part: str) -> bool:
        """Whether there is anything to show of a part."""
        found = self.results.parts[part].values()
        own = any(one.runs for one in found if one.cell.part == part)
        return self.page.shows(own or self.results.errors.get(part))

    # Claims

    @cached_property
    def claims(self) -> str:
        head = ["the paper says", *self.titles]
        return self.page.table("claims", head, claims(self.results))

    @cached_property
    def figure_claims(self) -> str:
        return self.page.table(
            "figure_claims", ("the paper says", "here"), figure_claims(self.results)
        )

    # Tables

    def table1(self, encoders: str) -> str:
        return self._table(f"table1_{encoders}", self.results.parts["table"], "table1", encoders)

    def table2(self, encoders: str) -> str:
        found = self.results.parts["table"]
        return self._table(f"table2_{encoders}", found, "table2", encoders, Trained.minutes, 2)

    def full(self, encoders: str) -> str:
        return self._table(f"full_{encoders}", self.results.full, "table1", encoders)

    @cached_property
    def full_claims(self) -> str:
        head = ["the paper says", *self.titles]
        rows = reached(self.results.full, self.results.full_plan)
        return self.page.table("full_claims", head, rows)

    @property
    def full_sizes(self) -> bool:
        """Whether there is anything at the paper's sizes, beside a smaller scale."""
        started = any(one.runs for one in self.results.full.values())
        return started or bool(self.results.full and self.page.published)

    def _table(
        self, name: str, found: Runs, paper: str, encoders: str,
        values: Reader = ended, digits: int = 1,
    ) -> str:  # fmt: skip
        """Ours and the paper's, methods by tasks."""
        rows = []
        for method, about in self.plan.methods.items():
            learner, said = self.plan.learner(method, encoders), PAPER[paper].get(method, {})
            if learner is None and method not in PAPER[paper]:
                continue
            row: list[str | None] = [about.title]
            for column, task in enumerate(self.plan.tasks):
                if learner is None:
                    row.append("–")
                    continue
                ours = shown(values(found[f"{task}-{learner}"]), digits)
                theirs = f" ({said[encoders][column]})" if encoders in said else ""
                if ours is None and not self.page.published:
                    ours = NOT_MEASURED
                row.append(None if ours is None else ours + theirs)
            rows.append(row)
        return self.page.table(name, ["", *self.plan.tasks.values()], rows)

    @cached_property
    def stuck(self) -> str:
        """Runs on CartPole that ended with the shortest episodes there are."""
        cells = {name: one for name, one in self.results.parts["table"].items()
                 if name.startswith("cartpole-")}  # fmt: skip
        said = []
        for name, one in cells.items():
            low = [str(seed) for seed, end in ended(one).items() if end < SHORTEST]
            if low:
                method, _, encoders = name.removeprefix("cartpole-").rpartition("-")
                title = self.plan.methods[method].title
                said.append(f"{title} ({encoders}) with seed {', '.join(low)}")
        if self.page.published and not all(one.whole for one in cells.values()):
            return self.page.text("stuck", None)
        return "; ".join(said)

    @cached_property
    def computers(self) -> str:
        """Of the runs whose minutes Table 2 shows."""
        cells = self.results.parts["table"].values()
        runs, whole = [r for one in cells for r in one.runs.values()], all(c.whole for c in cells)
        found = sorted({machine(run.meta) for run in runs})
        said = "; ".join(found)
        if whole or not self.page.published:
            return self.page.text("computers", said or None)
        before = self.page.text("computers", None)
        return f"{said}; where marked, {before}" if said else before

    @cached_property
    def curves(self) -> list[str]:
        found = self.results.parts["table"]
        pictures = []
        for task, title in self.plan.tasks.items():
            mine = [one for name, one in found.items() if name.startswith(f"{task}-")]
            if not self.page.shows(any(one.runs for one in mine)):
                continue
            draw = partial(figures.learning, self.results, task)
            alt, whole = f"{title}: return by round for all methods", all(o.whole for o in mine)
            pictures.append(self.page.picture(f"curves-{task}", alt, draw, whole))
        return pictures

    # Targets and clients

    @cached_property
    def unsynced(self) -> str:
        found, paper, plan = self.results.parts["unsynced"], PAPER["table1"], self.plan
        rows: list[Row] = [
            [
                plan.tasks[task],
                plan.methods[method].title,
                shown(ended(found[f"{task}-{method}"])),
                shown(ended(self.results.parts["table"][f"{task}-{method}-shared"])),
                str(paper[method]["shared"][list(plan.tasks).index(task)]),
            ]
            for task in plan.sizes.unsynced_tasks
            for method in ("independent", "fedqhd")
        ]
        head = ("task", "method", "synced by the server's word only", "synced as in Table 1",
                "the paper's")  # fmt: skip
        return self.page.table("unsynced", head, rows, keys=2)

    @cached_property
    def clients(self) -> Json:
        plan, rows = self.plan, list[Row]()
        ends = {task: by_clients(self.results, task) for task in plan.sizes.agent_tasks}
        for task, by in ends.items():
            first = min(by)
            for count, values in by.items():
                change = difference_of(values, by[first])
                against = None if change is None else signed(change)
                rows.append([plan.tasks[task], str(count), shown(values),
                             "–" if count == first else against])  # fmt: skip
        whole = all(one.whole for one in self.results.parts["clients"].values())
        draw = partial(figures.clients, self.results, ends)
        return {
            "said": ", ".join(f"{plan.tasks[t]} +{gain}%" for t, gain in PAPER["gain"].items()),
            "rows": self.page.table(
                "clients", ("task", "N", "return", "against one client"), rows, keys=2
            ),
            "picture": self.page.picture("clients", "return by number of clients", draw, whole),
        }

    # Errors of compilation

    @cached_property
    def dimension(self) -> Json:
        results, sizes = self.results, self.plan.sizes
        found, measured = results.parts["dimension"], by_dimension(results)
        rows, losses = list[Row](), {}
        for features in sizes.dimensions:
            one = found[f"D{features}-m{sizes.ratio * features}"]
            lost = policy_gap(results, one)
            losses[features] = list(lost.values())
            rows.append([
                str(features), str(sizes.ratio * features),
                *(number(by.get(features), 2) for by in measured.values()),
                shown(ended(one)), shown(value(one)), shown(lost),
            ])  # fmt: skip
        head = ("D", "m", *measured, "last 100 episodes", "greedy return", "gap to Oracle QHD's")
        falling = [
            f"{number(slopes(by), 3)} ({label.replace(', λ', ' with λ')})"
            for label, by in measured.items()
            if by
        ]
        drawn = {label: by for label, by in measured.items() if by}
        draw = partial(figures.dimension, results, drawn, losses)
        whole = self._all_errors("dimension") and all(one.whole for one in found.values())
        alt = "learning curves, error and policy gap by D"
        return {
            "falling": self.page.text("falling", ", ".join(falling) or None),
            "span": self.page.text("span", span(results, "dimension")),
            "rows": self.page.table("dimension", head, rows, keys=2),
            "picture": self.page.picture("dimension", alt, draw, whole),
        }

    @cached_property
    def anchors(self) -> Json:
        results, sizes = self.results, self.plan.sizes
        found, measured, rows = results.parts["anchors"], by_anchors(results), list[Row]()
        for count in sizes.anchors:
            one = found.get(f"D{sizes.fixed}-m{count}")
            rows.append([
                str(count), f"{count / sizes.fixed:.2g}",
                *(compact(by.get(count)) for by in measured.values()),
                "–" if one is None else shown(ended(one)),
                "–" if one is None else shown(value(one)),
            ])  # fmt: skip
        head = ("m", "m / D", *measured, "last 100 episodes", "greedy return")
        drawn = {label: by for label, by in measured.items() if by}
        whole = self._all_errors("anchors") and all(one.whole for one in found.values())
        draw = partial(figures.anchors, results, drawn)
        alt = "learning curves, error and return by m"
        seen = {
            s: errors(results, "anchors", results.ridge, "seen", s) for s in ("rollouts", "box")
        }
        told = {source: f"{by[max(by)].mean():.0f}" if by else None for source, by in seen.items()}
        return {
            "most": max(sizes.anchors),
            "seen": self.page.text("seen", told["rollouts"]),
            "seen_box": self.page.text("seen_box", told["box"]),
            "rows": self.page.table("anchors", head, rows, keys=2),
            "picture": self.page.picture("anchors", alt, draw, whole),
        }

    def _all_errors(self, part: str) -> bool:
        planned = measurements(self.plan, part, self.study.place.runs)
        return len(self.results.errors[part]) == sum(1 for _ in planned)

    # Choices

    @cached_property
    def tuning(self) -> Json:
        return choices.tuning(self.results)

    @cached_property
    def choices(self) -> Json:
        return choices.choices(self.plan)

    @cached_property
    def missing(self) -> list[str]:
        """Runs that are not there, or not to their end; a published page says only how many."""
        if self.page.published:
            return []
        said = []
        for task, title in self.plan.tasks.items():
            cells = [o for n, o in self.results.parts["table"].items() if n.startswith(f"{task}-")]
            why = self.study.absent.get(cells[0].cell.recipe["world"]["name"])
            if why and not any(one.runs for one in cells):
                said.append(f"{title}: {why}")
        for part, found in self.results.parts.items():
            if part == "tuning" and not any(one.runs for one in found.values()):
                continue  # that nobody asked for is no gap
            said += [f"{part}, {one.cell.name}: {line}" for one in found.values()
                     if one.cell.part == part and (line := one.missing())]  # fmt: skip
        return said

    @cached_property
    def origins(self) -> str:
        """Of runs, errors and tries; a tuning that has only tries misses no runs."""
        recorded: dict[str, list[Tables]] = {
            part: list(found) for part, found in self.study.records().items()
        }
        planned = self.study.planned()
        store, plan = self.study.place.store, self.plan
        if self.results.tried and not recorded["tuning"]:
            recorded["tuning"] = list(tries_records(self.study).values())
            planned["tuning"] = len(recorded["tuning"])
        if self.results.full:
            runs = [r for one in self.results.full.values() for r in one.runs.values()]
            recorded["table, the paper's sizes"] = [run.meta for run in runs]
            planned["table, the paper's sizes"] = sum(
                len(one.cell.seeds) for one in self.results.full.values()
            )
        for part in ("dimension", "anchors"):
            keys = [(part, m.name, m.digest) for m in measurements(plan, part, Path())]
            recorded[f"{part}, errors"] = [r for key in keys if (r := store.read(*key))]
            planned[f"{part}, errors"] = len(keys)
        return self.page.origins(recorded, planned)


def listed(sizes: Sequence[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)


def compact(samples: np.ndarray | None) -> str | None:
    """An error that may be far below 1."""
    if samples is None:
        return None
    return number(samples, 2) if samples.mean() >= 0.1 else f"{samples.mean():.0e}"
