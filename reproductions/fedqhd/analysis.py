"""FedQHD's page: ours with intervals, the paper's numbers, and computed verdicts, from records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from fedrl.core.types import Json
from reproductions.fedqhd import choices, figures, gap, theory
from reproductions.fedqhd.claims import RULES, by_encoders, claims, reached
from reproductions.fedqhd.figure_claims import figure_claims
from reproductions.fedqhd.measuring import cells, collect, tasks
from reproductions.fedqhd.origins import provenance
from reproductions.fedqhd.plan import ENCODERS, Plan
from reproductions.fedqhd.results import (
    PAPER,
    Results,
    by_anchors,
    by_clients,
    by_dimension,
    compact,
    ended,
    errors,
    policy_gap,
    shown,
    slopes,
    span,
    value,
    with_seeds,
)
from reproductions.fedqhd.statements import health, statements
from reproductions.pages import NOT_MEASURED, Page, Row, machine
from reproductions.results import BySeed, Runs, Trained
from reproductions.study import Study
from reproductions.verdicts import gap as difference_of
from reproductions.verdicts import number, signed

__all__ = ["cells", "health", "statements", "tasks", "write"]

SHORTEST = 12.0
"""A return on CartPole of always the same push, a little more than nine steps."""
Reader = Callable[[Trained], BySeed]


# The page


def write(study: Study, page: Page, path: Path) -> None:
    a = Analysis(study, collect(study), page)
    sizes = a.plan.sizes
    page.write(path, study=study, a=a, plan=a.plan, sizes=sizes, gap=gap, listed=listed,
               rules=RULES, theory=theory)  # fmt: skip


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
        rows = [one.row(self.plan) for one in claims(self.results)]
        return by_encoders(self.page.table("claims", head, rows), self.plan)

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
        plan = self.results.full_plan
        rows = [one.row(plan) for one in reached(self.results, self.results.full, plan)]
        return by_encoders(self.page.table("full_claims", head, rows), plan)

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
            theirs = about.paper or method
            learner, said = self.plan.learner(method, encoders), PAPER[paper].get(theirs, {})
            if learner is None and method not in PAPER[paper]:
                continue
            row: list[str | None] = [about.title]
            for column, task in enumerate(self.plan.tasks):
                if learner is None:
                    row.append("–")
                    continue
                cell = found[f"{task}-{learner}"]
                ours = with_seeds(values(cell), len(cell.cell.seeds), digits)
                beside = f" ({said[encoders][column]})" if encoders in said else ""
                if ours is None and not (self.page.published and self._as_before(task, learner)):
                    ours = NOT_MEASURED
                row.append(None if ours is None else ours + beside)
            rows.append(row)
        return self.page.table(name, ["", *self.plan.tasks.values()], rows)

    def _as_before(self, task: str, learner: str) -> bool:
        """Whether what was published is of the row's settings: not once it is tuned anew."""
        at = self.results.tuned.get((task, learner))
        return at is not None and not at.done

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
        return "; ".join(said)

    @cached_property
    def healthy(self) -> str:
        """The networks' rows beside what is published of Stable-Baselines3's."""
        found, plan = self.results.parts["table"], self.plan
        names = {name: one.title for name, one in plan.methods.items() if one.space == "dqn"}
        rows = [
            [title, f"{zoo['mean']} ± {zoo['std']}", f"{zoo['steps']:,}",
             *(shown(ended(found[f"{task}-{name}-shared"])) or NOT_MEASURED for name in names),
             shown(ended(found[f"{task}-feddqn-shared"], "train/return")) or NOT_MEASURED]
            for task, title in plan.tasks.items()
            for zoo in (RULES["zoo"][task],)
        ]  # fmt: skip
        last = "FedAvg-DQN in the last round"
        head = ("task", "the zoo's, ± over episodes", "its steps", *names.values(), last)
        return self.page.table("healthy", head, rows)

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
            alt, some = f"{title}: return by round for all methods", any(o.runs for o in mine)
            pictures.append(self.page.picture(f"curves-{task}", alt, draw if some else None))
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
        cells = self.results.parts["clients"].values()
        some = any(one.runs for one in cells)
        draw = partial(figures.clients, self.results, ends, RULES["solved"]) if some else None
        return {
            "said": ", ".join(f"{plan.tasks[t]} +{gain}%" for t, gain in PAPER["gain"].items()),
            "rows": self.page.table(
                "clients", ("task", "N", "return", "against one client"), rows, keys=2
            ),
            "picture": self.page.picture("clients", "return by number of clients", draw),
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
        draw = partial(figures.dimension, results, drawn, losses) if drawn else None
        alt = "learning curves, error and policy gap by D"
        return {
            "falling": self.page.text("falling", ", ".join(falling) or None),
            "span": self.page.text("span", span(results, "dimension")),
            "rows": self.page.table("dimension", head, rows, keys=2),
            "picture": self.page.picture("dimension", alt, draw),
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
        draw = partial(figures.anchors, results, drawn) if drawn else None
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
            "picture": self.page.picture("anchors", alt, draw),
        }

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
            if part == "tuning":
                continue  # the table of tries says what is to come
            said += [f"{part}, {one.cell.name}: {line}" for one in found.values()
                     if one.cell.part == part and (line := one.missing())]  # fmt: skip
        return said

    @cached_property
    def origins(self) -> str:
        return self.page.origins(*provenance(self.study, self.results))


def listed(sizes: Sequence[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)
