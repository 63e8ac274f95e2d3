"""FedRLHF's tables, figures and claims, from records: ours with intervals, beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reproductions.fedrlhf import (
    drift,
    figures,
    text_claims,
    theory,
    theory_claims,
    tradeoff,
)
from reproductions.fedrlhf.answers import NOISE
from reproductions.fedrlhf.cells import RATINGS, REVIEWS, RULES, cells, of_ratings, tasks
from reproductions.fedrlhf.claims import ratings_statements
from reproductions.fedrlhf.recommender_page import RecommenderPage
from reproductions.fedrlhf.results import (
    OWN,
    PAPER,
    at,
    by_number,
    percent,
    personal,
    plain,
    read_results,
    studies_of_texts,
)
from reproductions.fedrlhf.review_page import ReviewPage
from reproductions.pages import NOT_MEASURED, Page, Row
from reproductions.results import Runs, Trained
from reproductions.statements import Statement
from reproductions.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["cells", "statements", "tasks", "write"]

ALONE = ("independent", "centralized")
"""Where own policies are the server's."""
Draw = Callable[[], "Figure"]


class Analysis:
    """What the page's template shows."""

    def __init__(self, study: Study, page: Page) -> None:
        self.study, self.page, self.noise = study, page, NOISE
        self.texts, self.titles = studies_of_texts(study), study.grid.tables["titles"]
        self.begun = read_results(study, self.texts)
        self.results = self.begun.whole() if page.published else self.begun

    def picture(self, name: str, alt: str, runs: Iterable[Trained], draw: Draw) -> str:
        """A figure of these runs, as far as they are there."""
        there = [bool(one.runs) for one in runs]
        return self.page.picture(name, alt, draw if any(there) else None, whole=all(there))

    @cached_property
    def shown(self) -> list[str]:
        """The scales whose reviews there is something to say about."""
        found = self.results.texts
        return [name for name in found if name == self.study.scale
                or self.page.shows(any(one.runs for one in found[name].values()))]  # fmt: skip

    @cached_property
    def claims(self) -> str:
        rows = text_claims.rows(self.statements)
        return self.page.table("claims", ("the paper says", "here", "what was found"), rows)

    @cached_property
    def statements(self) -> list[Statement]:
        """Of ratings, of the theory and of reviews."""
        texts = {name: self.results.texts[name] for name in self.shown}
        proven = theory_claims.theory_statements(self.study)
        if not all(self.results.bounds.values()) and self.page.published:
            proven = [replace(one, verdict=NOT_MEASURED) for one in proven]
        return [
            *ratings_statements(self.results), *proven, *text_claims.text_statements(texts)
        ]  # fmt: skip

    @cached_property
    def withdrawn(self) -> str:
        """What was taken back of what was published, as long as any of it is shown."""

        def again(*parts: Runs) -> bool:
            return all(
                one.whole for found in parts for name, one in found.items() if name.endswith(ALONE)
            )

        ratings = again(self.results.parts["movielens"])
        measured = not self.page.published or (ratings and again(*self.results.texts.values()))
        name = "withdrawn_reviews" if ratings else "withdrawn"
        return self.page.text(name, "" if measured else None)

    # Ratings

    def movielens(self, clients: int) -> dict[str, Any]:
        found = self.results.methods(clients)
        ours = found["fedrlhf"]
        if not self.page.shows(ours.runs):
            return {}
        alt = f"K = {clients}: accuracy and rank correlation"
        return {
            "cell": ours.cell,
            "rows": self._accuracies(clients),
            "why": self.page.text(f"why_{clients}", self._why(clients)),
            "leaky": self._leaky(clients),
            "learning": self.picture(f"movielens-{clients}", f"{alt} by round", found.values(),
                                     partial(figures.learning, found, clients)),
            "spread": self.page.text(f"spread_{clients}", self._spread(ours, clients)),
            "violins": self.picture(f"violins-{clients}", f"{alt} of clients by round", [ours],
                                    partial(figures.violins, ours, clients)),
        }  # fmt: skip

    def _accuracies(self, clients: int) -> str:
        found = self.results.methods(clients)
        often = percent(at(found["fedrlhf"], "eval/majority"))
        name = "majority class of the client's trained ratings"
        rows: list[Row] = [[name, "–", often, "–", "–", "–"]]
        for method, one in found.items():
            alone = method in ALONE
            rows.append([
                self.titles[method],
                percent(at(one, "eval/accuracy", 1)), percent(at(one, "eval/accuracy")),
                "–" if alone else percent(at(one, OWN)), plain(at(one, "eval/spearman"), 2),
                "–" if alone else plain(at(one, "personal/spearman"), 2),
            ])  # fmt: skip
        if clients == 10:
            said = (f"{mean} ± {spread}" for mean, spread in
                    (PAPER["ratings"]["first"], PAPER["ratings"]["last"]))  # fmt: skip
            rows.append(["the paper's FedRLHF (± is its deviation)", *said, "–", "–", "–"])
        end = self.results.rounds
        head = ("", "global accuracy, round 1, %", f"round {end}, %", f"own, round {end}, %",
                "global Spearman", "own Spearman")  # fmt: skip
        return self.page.table(f"movielens_{clients}", head, rows)

    def _why(self, clients: int) -> str | None:
        """What the network remembers beside what it predicts; why was not ablated."""
        ours, labels = (self.results.methods(clients)[name] for name in ("fedrlhf", "labels"))
        seen, new, own_ones = (
            percent(at(labels, metric)) for metric in ("eval/train_accuracy", "eval/accuracy", OWN)
        )
        steps = list(at(ours, "env/steps").values())
        if not steps or seen is None or new is None:
            return None if self.page.published else ""
        epochs = ours.cell.resolved().algorithm.local_epochs
        each = float(np.mean(steps)) / (ours.cell.rounds * epochs * clients)
        return f"""Told the true labels, the same network gets {seen}% of the trained ratings right,
            but only {new}% of the held-out ones, and the clients' own networks {own_ones}%. A
            client has {each:.0f} trained ratings on average. Why the network remembers them and
            predicts no better was not tested here."""

    def _leaky(self, clients: int) -> str:
        rows = []
        for method, what in (
            ("fedrlhf", "FedRLHF, scored on trained ratings"),
            ("labels", "told the labels, scored on trained ratings (the release's protocol)"),
        ):
            one = self.results.methods(clients)[method]
            seen = (percent(at(one, "eval/train_accuracy", number)) for number in (1, None))
            rows.append([what, *seen, percent(at(one, "eval/accuracy"))])
        head = ("NO evaluation, %", "round 1", f"round {self.results.rounds}",
                "the same network, held-out ratings")  # fmt: skip
        return self.page.table(f"leaky_{clients}", head, rows)

    def _spread(self, one: Trained, clients: int) -> str | None:
        ranks, right = by_number(one, "personal/spearman"), by_number(one, "personal/accuracy")
        if not ranks:
            return None if self.page.published else ""
        listed = ""
        if clients <= 10:
            listed = " Spearman by client: " + ", ".join(f"{r:.2f}" for r in ranks.values()) + "."
        return f"""Clients' own policies after the last round, means over seeds by the client's
            number: accuracy from {100 * min(right.values()):.1f}% to
            {100 * max(right.values()):.1f}%, Spearman from {min(ranks.values()):.2f} to
            {max(ranks.values()):.2f}.{listed}"""

    @cached_property
    def recommender(self) -> dict[str, Any]:
        return RecommenderPage(self.page, self.begun, self.titles).section()

    @cached_property
    def feedback(self) -> dict[str, Any]:
        found, client = self.results.parts["feedback"], self.results.flipped
        if not self.page.shows(any(one.runs for one in found.values())):
            return {}
        rows = []
        for kind, one in found.items():
            right, rank = at(one, "eval/accuracy"), at(one, "eval/spearman")
            row = [self.titles[kind], percent(right), plain(rank, 2)]
            for metric, shown in (("personal/accuracy", percent), ("personal/spearman", plain)):
                row += [shown(personal(one, metric, client, others)) for others in (False, True)]
            rows.append(row)
        head = ("", "global accuracy, %", "global Spearman", "that client's own accuracy, %",
                "the others' own, %", "that client's own Spearman", "the others' own")  # fmt: skip
        return {"cell": found["none"].cell, "rows": self.page.table("feedback", head, rows)}

    # The theorems

    @cached_property
    def tradeoff(self) -> dict[str, Any]:
        results, columns = self.results, tradeoff.measured(self.results)
        cell = results.parts["tradeoff"]["lam-0"].cell
        if not self.page.shows(columns):
            return {}
        rows: list[Row] = [
            [f"{lam:g}", *(tradeoff.row(columns, place) if columns else [None] * 8)]
            for place, lam in enumerate(results.lams)
        ]
        head = ("λ", "P", "P − P(0)", "J_g", "mean J⁰ of own policies", "accuracy, %",
                "own accuracy, %", "Spearman", "steps to the target")  # fmt: skip
        draw, told = None, None
        if columns:
            draw = partial(figures.tradeoff, results.lams, columns, tradeoff.excess(columns))
            told = tradeoff.told_rates(results, columns)
        return {
            "cell": cell,
            "seeds": len(columns["P"]) if columns else len(cell.seeds),
            "rates": self.page.text("rates", told),
            "rows": self.page.table("tradeoff", head, rows),
            "picture": self.page.picture("tradeoff", "P, J_g, accuracy and samples by λ", draw),
        }

    @cached_property
    def bound(self) -> dict[str, Any]:
        groups, cell = self.results.bounds, self.study.grid.cells["bound"][0]
        if not self.page.shows(any(groups.values())):
            return {}
        rows: list[Row] = [
            [lam, str(number), *theory.row(same, end)]
            for lam, same in groups.items()
            for end, number in ((0, 1), (-1, cell.rounds))
        ]
        head = ("λ", "T", "mean gap", "gap of θ_avg", "gap of θ_T", "transient", "noise",
                "feedback", "drift", "the paper's bound", "repaired")  # fmt: skip
        whole = all(groups.values())
        draw = partial(figures.bound, groups) if whole else None
        constants = (f"λ = {lam}: {theory.constants(same)}" for lam, same in groups.items())
        return {
            "cell": cell,
            "algorithm": cell.resolved().algorithm,
            "seeds": max(map(len, groups.values())) or len(cell.seeds),
            "constants": self.page.text("constants", "; ".join(constants) if whole else None),
            "rows": self.page.table("bound", head, rows, keys=2),
            **theory_claims.tables(theory_claims.read_theory(self.study)),
            "picture": self.page.picture(
                "bound", "the bound of Theorem 4.1 beside the measured gap", draw
            ),
        }  # fmt: skip

    def reviews(self, scale: str) -> dict[str, Any]:
        return ReviewPage(self.page, self.texts, self.begun, self.results).section(scale)

    # Where numbers come from

    @cached_property
    def missing(self) -> Sequence[str]:
        """Runs that are not there, or not to their end, of parts that were begun.

        Rows of a part that lack the same share a line.
        """
        texts = {f"imdb, {name}": found for name, found in self.begun.texts.items()}
        rows: dict[tuple[str, str], list[str]] = {}
        for part, found in {**self.begun.parts, **texts}.items():
            if any(one.runs for one in found.values()):
                for one in found.values():
                    if line := one.missing():
                        rows.setdefault((part, line), []).append(one.cell.name)
        return [f"{part}, {', '.join(names)}: {line}" for (part, line), names in rows.items()]

    @cached_property
    def origins(self) -> str:
        """Of all parts, IMDb's with their scale."""
        records, planned = self.study.records(), self.study.planned()
        enumerated = theory_claims.read_theory(self.study).bandit
        records["bound"] += [enumerated] if enumerated else []
        planned["bound"] += 1
        records["baselines"] = list(self.results.baselines.values())
        for part in REVIEWS:
            del records[part], planned[part]
            for name in self.shown:
                records[f"{part}, {name}"] = self.texts[name].records()[part]
                planned[f"{part}, {name}"] = self.texts[name].planned()[part]
        return self.page.origins(records, planned)


def statements(study: Study) -> list[Statement]:
    """What the paper says, judged by the records that there are."""
    return Analysis(study, Page(study.folder, study.folder)).statements


def write(study: Study, page: Page, path: Path) -> None:
    """Generated ratings are not shown beside what was published of the genuine ones."""
    other = of_ratings(study)
    if other is not study:
        measured = other.records()
        if not page.published or any(measured[part] for part in RATINGS):
            study, page = other, replace(page, published={})
    page.write(path, a=Analysis(study, page), study=study, paper=PAPER, rules=RULES, drift=drift)
