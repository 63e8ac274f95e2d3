"""FedAgent's tables and figures, from the records of both published scales.

Verdicts are computed, never typed: a paired 95% interval over common seeds decides.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrl.core.number_format import si
from reproductions.fedagent import figures
from reproductions.fedagent.claims import (
    SUCCESS,
    TITLES,
    against,
    claims,
    shown,
)
from reproductions.fedagent.environment import worlds_differ
from reproductions.fedagent.run_settings import differences, settings_of
from reproductions.fedagent.sections import whole, without
from reproductions.pages import NOT_MEASURED, Page, Row, markdown_table
from reproductions.results import Runs, Trained
from reproductions.study import Study
from reproductions.verdicts import BySeed, mean_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))


class Analysis:
    """What the page's template shows. No part has the same name at two scales of a page."""

    def __init__(self, scale: str, studies: Mapping[str, Study], page: Page) -> None:
        self.page = page
        self.parts: dict[str, Runs] = {}
        self.started: dict[str, Runs] = {}  # those that have begun, also with runs not at their end
        self.records: dict[str, Any] = {}
        self.planned: dict[str, int] = {}
        self.scales: dict[str, list[str]] = {}
        self.found: dict[str, Mapping[str, Runs]] = {}  # all parts as they are, on request, too
        self.gone: list[str] = []
        for name, study in studies.items():
            found = study.runs()
            self.gone += study.grid.tables["gone"]
            aside = {*study.grid.tables["on_request"], *study.grid.tables["gone"]}
            measured = [part for part in found if part not in aside]
            self.parts |= found
            self.started |= {part: found[part] for part in measured if any_runs(found[part])}
            if page.published:  # what is half measured does not replace what was published
                self.parts |= {part: whole(found[part]) for part in measured}
                for part in TITLES.keys() & set(measured):
                    if self.parts[part]["fedagent"].runs:
                        page.published = without(page.published, part)
            if page.published or any(part in self.started for part in measured):
                self.scales[name] = measured
                self.found[name] = found
                self.records |= study.records()
                self.planned |= study.planned()
        self.commands = list(dict.fromkeys((*self.scales, scale)))

    def begun(self, *parts: str) -> bool:
        """Whether each of these parts has a run."""
        return all(any_runs(self.parts[part]) for part in parts)

    def shows(self, *parts: str) -> bool:
        return self.page.shows(self.begun(*parts))

    def picture(
        self, name: str, alt: str, lines: Sequence[Trained], draw: Callable[[], Figure]
    ) -> str:
        """Of what there is; but one that was published gives way to a whole one only."""
        begun = any(one.runs for one in lines)
        kept = name in self.page.published.get("figures", {})
        ready = all(one.whole for one in lines) if kept else begun
        return self.page.picture(name, alt, draw if ready else None)

    @cached_property
    def claims(self) -> str:
        found = claims(self.parts, self.scales.values(), self.shows)
        rows = [one.row for one in [*found, *worlds_differ(self.parts)]]
        head = ("the paper says", "where", "here", "difference in points")
        return self.page.table("claims", head, rows, keys=2) if rows else ""

    @cached_property
    def headlines(self) -> str:
        """By world, what records say of the comparison in both views."""
        rows = []
        for part in (one for names in self.scales.values() for one in names if one in TITLES):
            found = self.parts[part]
            ours, groups = found["fedagent"], figures.groups(found)
            if not ours.runs:
                continue
            rounds, last = self._ends(part)
            ends = {name: mean_of([one.value(SUCCESS, rounds) for one in several])
                    for name, several in groups.items()}  # fmt: skip
            ends |= {
                f"{name}, equal rollouts": mean_of([one.value(SUCCESS, last) for one in several])
                for name, several in groups.items() if name != "FedAgent"
            }  # fmt: skip
            row = [TITLES[part], shown(ours.first(SUCCESS)), *map(shown, ends.values())]
            rows.append([*(cell or NOT_MEASURED for cell in row), str(len(ours.runs))])
        if not rows:
            return ""
        return markdown_table(["from records, %", "warm start", *ends, "seeds"], rows)

    # FedAgent, Centralized, Local

    def comparison(self, part: str) -> dict[str, Any]:
        """Both views, by type of task, and as curves."""
        found, title = self.parts[part], TITLES[part]
        ours, others = found["fedagent"], [one for n, one in found.items() if n != "fedagent"]
        rounds, last = self._ends(part)
        two = [ours, found["centralized"]]
        return {
            "title": title,
            "shown": self.page.shows(ours.runs),
            "rounds": plural(rounds, "round"),
            "settings": self.settings(part, [ours], {
                title_of(name): one for name, one in found.items() if name != "fedagent"
            }),
            "gains": self._gains(part, rounds, last),
            "seeds": self._seeds(part, ours),
            "model": self.page.text(f"{part}_model", self._model(ours)),
            "rows": self._views(part, rounds, last),
            "paper": ", ".join(
                f"{name} {said['webshop' if 'webshop' in part else 'alfworld']}"
                for name, said in PAPER["table1"].items()
            ),
            "kinds": self._kinds(part, rounds),
            "scores": self._scores(part, rounds, last) if "webshop" in part else "",
            "picture": self.picture(
                part, f"{title}: success in both views", [ours, *others],
                partial(figures.both_views, found),
            ),
            "marks": self._marks(found),
            "clients": self.picture(
                f"{part}-clients", f"{title}: clients", two, partial(figures.clients, found)
            ),
        }  # fmt: skip

    def _ends(self, part: str) -> tuple[int, int]:
        """Rounds of FedAgent and of the baselines: those of earlier runs while these are shown."""
        found = self.parts[part]
        if self.page.published and not found["fedagent"].runs:
            before: list[int] = self.page.published.get("rounds", {}).get(part, [])
            if before:
                return before[0], before[-1]
        return found["fedagent"].cell.rounds, found["centralized"].cell.rounds

    def settings(self, part: str, lines: Sequence[Trained], beside: Mapping[str, Trained]) -> str:
        """Of a chapter's own runs, and in what those beside them differ."""
        said = settings_of(one.cell for one in lines)
        cells = [one.cell for one in lines]
        others = {title: one.cell for title, one in beside.items()}
        if told := differences(others, cells[0], cells):
            said += f" In what others differ: {told}."
        return self.page.text(f"{part}_settings", said if any(one.runs for one in lines) else None)

    def _seeds(self, part: str, ours: Trained) -> str:
        """Of the runs that are shown, which may be fewer than are planned."""
        planned, there = len(ours.cell.seeds), len(ours.runs)
        said = self.page.text(f"{part}_seeds", plural(there, "seed") if there else None)
        return said if there == planned else f"{said} ({there} of {planned} planned are recorded)"

    def _model(self, ours: Trained) -> str | None:
        """How large the model is and what it was shown, where its folder is at hand."""
        record = Path(ours.cell.recipe["algorithm"]["model"]) / "warmstart.json"
        if not record.is_file():  # what was published of it is of the earlier runs' alone
            return None if self.page.published and not ours.runs else ""
        about = json.loads(record.read_text(encoding="utf-8"))
        name = Path(about["settings"]["model"]).name
        return (
            f"{'The built-in model' if name == 'builtin' else name} of "
            f"{si(about['parameters'], digits=2)} parameters has imitated the expert on "
            f"{len(about['tasks'])} public tasks."
        )

    def _views(self, part: str, rounds: int, last: int) -> str:
        found = self.parts[part]
        ours, start = found["fedagent"].value(SUCCESS), found["fedagent"].first(SUCCESS)
        rows: list[Row] = [
            ["warm start", shown(start), "", "", ""],
            ["FedAgent", shown(ours), "–", shown(ours), "–"],
        ]
        others = {title_of(name): [one] for name, one in found.items() if name != "fedagent"}
        others["Local, mean"] = figures.groups(found)["Local (mean)"]
        for label, several in others.items():
            row: list[str | None] = [label]
            for at in (rounds, last):
                theirs = mean_of([one.value(SUCCESS, at) for one in several])
                row += [shown(theirs), against(ours, theirs, start, [found["fedagent"], *several])]
            rows.append(row)
        if not found["fedagent"].runs:  # clients of earlier runs that the grid has no more
            there = {row[0] for row in rows}
            before = self.page.published.get("tables", {}).get(part, ())
            rows += [[row[0], *[None] * 4] for row in before if row[0] not in there]
        head = ["", f"equal local epochs (round {rounds})", "FedAgent against it",
                f"equal rollouts (round {last} for the others)", "FedAgent against it"]  # fmt: skip
        columns = 5 if last > rounds else 3  # without longer baselines there is one view
        return self.page.table(part, head[:columns], [row[:columns] for row in rows])

    def _marks(self, found: Runs) -> str:
        """What a mark of the clients' figure is."""
        if figures.marks(found) == figures.PLAYED:
            return (
                "marks are the success of a client's own episodes while it trained, a colour per "
                "client; the line is the server's model on unseen tasks, played at a lower "
                "temperature. The paper's marks are the client's model after its training, which "
                "these runs did not record (`algorithm.eval_trained`)."
            )
        tasks = found["fedagent"].cell.resolved().algorithm.eval_trained
        return (
            f"marks are the client's model after its training, before it is averaged, on {tasks} "
            "of the unseen tasks, a colour per client; the line is the server's model on all of "
            "them, at the same temperature."
        )

    def _gains(self, part: str, rounds: int, last: int) -> str:
        """By learner: start, end, gain, and the share of the start's failures that is gone."""
        rows: list[Row] = []
        for at in dict.fromkeys((rounds, last)):
            for label, several in figures.groups(self.parts[part]).items():
                if at > rounds and label == "FedAgent":
                    continue
                start = mean_of([one.first(SUCCESS) for one in several])
                end = mean_of([one.value(SUCCESS, at) for one in several])
                name = f"{label}, round {at}" if at > rounds else label
                rows.append([name, *gained(start, end)])
        if not any(cell for row in rows for cell in row[1:]):
            return ""
        head = ("", "start, %", "end, %", "gain, points", "of the start's failures removed, %")
        return self.page.table(f"{part}_gains", head, rows)

    def _kinds(self, part: str, rounds: int) -> str:
        """Success by type of task at equal local epochs; the paper's are of the genuine games."""
        found = self.parts[part]
        kinds = PAPER["kinds"]["webshop" if "webshop" in part else "household"]
        if ran := found["fedagent"].runs.values():
            known = {metric for run in ran for metric in run.rounds[0]}
            kinds = [kind for kind in kinds if f"{SUCCESS}_{kind}" in known]
        if not kinds:
            return ""
        rows: list[Row] = []
        for label, several in figures.groups(found).items():
            by_kind = (mean_of([one.value(f"{SUCCESS}_{kind}", rounds) for one in several])
                       for kind in kinds)  # fmt: skip
            rows.append([label, *map(shown, by_kind)])
        if part == "alfworld" and kinds == PAPER["kinds"]["household"]:
            rows += [
                [f"*{name}, the paper's*", *(f"{value:.1f}" for value in said["kinds"])]
                for name, said in PAPER["table1"].items()
            ]
        return self.page.table(f"{part}_kinds", ["", *kinds], rows)

    def _scores(self, part: str, rounds: int, last: int) -> str:
        """WebShop's score: the reward of what was bought, in percent."""
        rows: list[Row] = []
        for label, several in figures.groups(self.parts[part]).items():
            said = [f"{paper['score']:.1f}" for name, paper in PAPER["table1"].items()
                    if name.split()[0] == label.split()[0]]  # fmt: skip
            row: list[str | None] = [label]
            for at in dict.fromkeys((rounds, last)):
                end = rounds if label == "FedAgent" else at
                row.append(shown(mean_of([one.value("eval/return", end) for one in several])))
            rows.append([*row, " / ".join(said)])
        views = ("equal local epochs", "equal rollouts")[: 1 + (last > rounds)]
        return self.page.table(f"{part}_scores", ("score", *views, "the paper's"), rows)

    # What is missing, and what it took

    @property
    def missing(self) -> list[str]:
        """Runs that are not there, or not to their end, of parts that have begun."""
        return [
            f"{name}, {part}, {one.cell.name}: {line}"
            for name, parts in self.scales.items()
            for part in parts
            for one in self.started.get(part, {}).values()
            if (line := one.missing())
        ]

    @property
    def costs(self) -> str:
        rows: list[Row] = []
        for name, part in ((n, p) for n, parts in self.scales.items() for p in parts):
            ran = [(one.cell, run) for one in self.parts[part].values()
                   for run in one.runs.values()]  # fmt: skip
            if ran:
                epochs = sum(cell.epochs(max(run.rounds)) for cell, run in ran)
                last = [run.rounds[max(run.rounds)] for _, run in ran]
                episodes = sum(metrics.get("env/episodes", 0.0) for metrics in last)
                rows.append([name, part, f"{epochs:,}", f"{episodes:,.0f}"])
            elif self.page.published:
                rows.append([name, part, None, None])
        head = ("scale", "part", "client epochs", "episodes")
        return self.page.table("costs", head, rows, keys=2)

    def origins(self, marked: bool) -> str:
        return self.page.origins(self.records, self.planned, marked)


def gained(start: BySeed, end: BySeed) -> list[str | None]:
    """Over seeds that have both: start, end, gain, and share of the failures removed."""
    both = [seed for seed in end if seed in start]
    rise = {seed: end[seed] - start[seed] for seed in both}
    failed = {seed: rise[seed] / (1 - start[seed]) for seed in both if start[seed] < 1}
    columns = ({s: start[s] for s in both}, {s: end[s] for s in both}, rise, failed)
    return [shown(column) for column in columns]


def title_of(name: str) -> str:
    return name.capitalize().replace("-", " ")


def any_runs(found: Runs) -> bool:
    return any(one.runs for one in found.values())


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
