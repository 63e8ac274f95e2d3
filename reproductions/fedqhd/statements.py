"""FedQHD's statements in the index of results, and whether its networks are healthy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from reproductions.fedqhd.claims import RULES, claims, reached
from reproductions.fedqhd.figure_claims import figure_claims
from reproductions.fedqhd.measuring import collect, measurements
from reproductions.fedqhd.plan import ENCODERS, Plan
from reproductions.fedqhd.results import Results, ended, shown
from reproductions.pages import NOT_MEASURED
from reproductions.records import Data
from reproductions.results import Runs
from reproductions.statements import Health, Statement, judged, records_of
from reproductions.study import Study

PARTS = {"Figure 1": "dimension", "Figure 2": "table", "Figure 3": "anchors", "Remark 2": "anchors",
         "Corollary 1": "anchors", "Corollary 2": "anchors", "Table 2": "table",
         "Figure 4": "clients"}  # fmt: skip
ERRORS = ("the compilation error", "the error drops", "γ grows", "no gap", "the gap is")
"""How claims begin that are about draws of encoders, not about runs."""


def statements(study: Study) -> list[Statement]:
    results = collect(study)
    found = [*of_table(results, results.parts["table"], results.plan, "")]
    if results.full:
        found += of_table(results, results.full, results.full_plan, ", the paper's sizes")
    return [*found, *of_figures(study, results)]


def of_table(results: Results, found: Runs, plan: Plan, sizes: str) -> Iterator[Statement]:
    """Every cell of every claim: a task with one encoder for all, or with own ones."""
    for claim in reached(results, found, plan) if sizes else claims(results):
        for column, (task, title) in enumerate(plan.tasks.items()):
            for encoders in ENCODERS:
                text = claim.judge(task, encoders, column)
                if text in ("–", "the same"):
                    continue
                names = [plan.learner(method, encoders) for method in claim.methods]
                cells = [found[f"{task}-{name}"] for name in names if name]
                yield judged("Table 1", f"{claim.title}: {title}, {encoders}{sizes}", text,
                             records_of(cells), min(len(ended(one)) for one in cells))  # fmt: skip


def of_figures(study: Study, results: Results) -> Iterator[Statement]:
    for title, text in figure_claims(results):
        where, _, claim = str(title).rpartition(": ")
        if where in ("Theorem 1", "Lemma 1", "Theorem 2"):
            yield judged(where, claim, text, results.theorems, results.plan.sizes.draws)
            continue
        part = PARTS.get(where, "unsynced")
        if claim.startswith(ERRORS):
            keys = [(part, m.name, m.digest) for m in measurements(results.plan, part, Path())]
            records: list[Data] = [r for key in keys if (r := study.place.store.read(*key))]
            yield judged(where, claim, text, records, fewest(results, part))
            continue
        cells = list(results.parts[part].values())
        if part in ("clients", "unsynced") or where == "Figure 2":
            task = next(t for t, name in results.plan.tasks.items() if name in claim)
            own = f"{task}-fedqhd" if where == "Figure 2" else f"{task}-"
            cells = [one for one in cells if one.cell.name.startswith(own)]
        whole = [len(ended(one)) for one in cells if ended(one)]
        yield judged(where or "Table 1", claim, text, records_of(cells), min(whole, default=0))


def fewest(results: Results, part: str) -> int:
    """Draws of the source that has the fewest."""
    draws = Counter(str(points[0]["source"]) for points in results.errors[part] if points)
    return min(draws.values(), default=0)


def health(study: Study) -> Iterator[Health]:
    """The networks beside Stable-Baselines3's as its zoo publishes them."""
    results = collect(study)
    names = {n: one.title for n, one in results.plan.methods.items() if one.space == "dqn"}
    for task, title in results.plan.tasks.items():
        zoo = RULES["zoo"][task]
        for name, method in names.items():
            one = results.parts["table"][f"{task}-{name}-shared"]
            yield Health(
                method,
                title,
                shown(ended(one)) or NOT_MEASURED,
                f"{zoo['mean']} ± {zoo['std']} over episodes in {zoo['steps']:,} steps",
                "RL Baselines3 Zoo, benchmark.md, DQN",
                records_of([one]),
            )
