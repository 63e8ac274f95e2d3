"""The page's section on the linear policy: its baselines, answers, and how it was tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.report import plots
from reproductions.fedrlhf.results import OWN, Results, at, percent, plain
from reproductions.pages import NOT_MEASURED, Page, Row, markdown_table
from reproductions.results import Trained
from reproductions.verdicts import values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEARMAN = "personal/spearman"
TOLD = {
    "logistic": "a client's own logistic regression, told the stars",
    "factors": "matrix factorisation in one place, told the stars",
}
HEAD = ("K", "", "seeds", "own accuracy, %", "own Spearman", "shared model's accuracy, %")
ALL = "all"


@dataclass(frozen=True)
class RecommenderPage:
    page: Page
    results: Results
    titles: Mapping[str, str]

    def section(self) -> dict[str, Any]:
        """Nothing where nothing was measured."""
        if not any(one.runs for one in self.results.parts["recommender"].values()):
            return {}
        rows = [row for clients in self.results.crowds for row in self.beside(clients)]
        return {
            "rows": shown(HEAD, rows),
            "answers": shown(("K", "answers of each person", "seeds", "own accuracy, %",
                              "own Spearman"), self.by_answers()),
            "picture": self.picture(),
            "tuning": shown(("", "seeds", "federated, own accuracy, %", "own Spearman",
                             "centralized, own accuracy, %"), self.tuned()),
            "rounds": self.results.learners(self.results.crowds[0])["linear"].cell.rounds,
        }  # fmt: skip

    def beside(self, clients: int) -> Iterator[Row]:
        found = self.results.learners(clients)
        often = at(found["linear"], "eval/majority")
        yield [str(clients), "majority class", str(len(often)), percent(often), "–", "–"]
        for name, title in TOLD.items():
            right, rank = (self.results.told(clients, name, m) for m in ("accuracy", "spearman"))
            yield [str(clients), title, str(len(right)), percent(right), plain(rank), "–"]
        for name, one in found.items():
            title = f"{self.titles['linear']}: one client has all" if name == "centralized" else (
                self.titles[name])  # fmt: skip
            own = at(one, OWN)
            yield [str(clients), title, str(len(own)), percent(own), plain(at(one, SPEARMAN)),
                   "–" if name == "alone" else percent(at(one, "eval/accuracy"))]  # fmt: skip

    def by_answers(self) -> Iterator[Row]:
        for clients in self.results.crowds:
            for answers, one in self.series(clients).items():
                own = at(one, OWN)
                yield [str(clients), answers, str(len(own)), percent(own), plain(at(one, SPEARMAN))]

    def series(self, clients: int) -> dict[str, Trained]:
        """By answers in words; all are the table's own runs."""
        few = self.results.by_answers(clients)
        if not few:
            return {}
        named = {str(answers): one for answers, one in sorted(few.items())}
        return named | {ALL: self.results.learners(clients)["linear"]}

    def picture(self) -> str:
        crowds = {clients: self.series(clients) for clients in self.results.crowds}
        there = {clients: some for clients, some in crowds.items()
                 if some and any(one.runs for one in some.values())}  # fmt: skip
        draw: Callable[[], Figure] | None = partial(drawn, there) if there else None
        return self.page.picture("answers", "accuracy and rank correlation by answers", draw)

    def tuned(self) -> Iterator[Row]:
        found = self.results.parts["recommender_tuning"]
        for one in found.values():
            learner, tried = one.cell.labels["learner"], one.cell.labels["tried"]
            if learner == "linear":
                own, other = at(one, OWN), at(found[f"centralized-{tried}"], OWN)
                title = tried.replace("-", " = ").replace("_", " ")
                yield [title, str(len(own)), percent(own), plain(at(one, SPEARMAN)), percent(other)]


def shown(head: tuple[str, ...], rows: Iterator[Row] | list[Row]) -> str:
    return markdown_table(head, [[NOT_MEASURED if c is None else c for c in row] for row in rows])


def drawn(crowds: Mapping[int, Mapping[str, Trained]]) -> Figure:
    """Accuracy and rank correlation of own policies against answers, with the majority."""
    import matplotlib

    figure, row = plots.figure(2, (5.4, 3.4))
    with matplotlib.rc_context(plots.STYLE):
        ticks = list(next(iter(crowds.values())))
        for place, (clients, found) in enumerate(crowds.items()):
            names = [name for name, one in found.items() if one.runs]
            x = np.array([ticks.index(name) for name in names])
            colour = plots.PALETTE[place]
            for axes, metric, factor in ((row[0], OWN, 100.0), (row[1], SPEARMAN, 1.0)):
                found_at = [plots.interval(factor * np.array(list(at(found[n], metric).values())))
                            for n in names]  # fmt: skip
                mean, half = np.array(found_at, float).T
                axes.errorbar(x, mean, np.nan_to_num(half), fmt="o-", color=colour, capsize=3,
                              markersize=4, linewidth=1.6, label=f"K = {clients}")  # fmt: skip
            often = values(at(found[names[-1]], "eval/majority"), 100)
            if often is not None:
                row[0].axhline(often.mean(), color=colour, linestyle=":", linewidth=1.2,
                               label=f"majority class, K = {clients}")  # fmt: skip
        for axes, title in ((row[0], "accuracy of own policies, %"), (row[1], "Spearman")):
            axes.set_title(f"{title}, held-out ratings")
            axes.set_xticks(range(len(ticks)), ticks)
            axes.set_xlabel("answers of each person")
        plots.legend(figure, row[0])
    return figure
