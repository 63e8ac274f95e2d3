"""FedQHD's findings and what became of them, decided by the measured numbers.

A verdict is None where a record is missing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedrl.report import plots
from reproductions.fedqhd.plan import ENCODERS, Plan
from reproductions.fedqhd.results import (
    ALONE,
    PAPER,
    Results,
    by_anchors,
    by_clients,
    by_dimension,
    ended,
    judged,
    reaches,
    regimes,
    reproduced,
    returns,
    shown,
    slopes,
)
from reproductions.pages import Row
from reproductions.results import Runs
from reproductions.verdicts import FAILS, HOLDS, OPEN, above, gap, number, signed

NEAR = 0.1
"""How far from −1/2 a slope may be."""
CLIFF = 0.01
"""What m = D leaves of an error, at most, if it ends there."""
Judge = Callable[[str, str, int], str | None]
"""Of a task, its encoders and its column in the paper's tables."""


def claims(results: Results) -> list[Row]:
    found, plan = results.parts["table"], results.plan
    return [
        *reached(found, plan),
        row(plan, "better than Truncate FedAvg-QHD", better(found, plan, "truncate")),
        row(plan, "better than FedAvg-DQN", apart(found, plan, "feddqn")),
        row(plan, "better than Distillation FedDQN", apart(found, plan, "distill")),
        row(plan, "Independent QHD learns as little as the paper's", as_little(found, plan)),
    ]


def reached(found: Runs, plan: Plan) -> list[Row]:
    """What is also asked at the paper's sizes."""
    return [
        row(plan, "FedQHD reaches the paper's return", reaching(found, plan)),
        row(plan, "FedQHD is better than Independent QHD", better(found, plan, "independent")),
    ]


def row(plan: Plan, claim: str, judge: Judge) -> Row:
    return [claim, *(judge(t, e, i) for i, t in enumerate(plan.tasks) for e in ENCODERS)]


def better(found: Runs, plan: Plan, method: str) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str | None:
        name = plan.learner(method, encoders)
        if name is None:
            return "–"
        if name == plan.learner("fedqhd", encoders):
            return "the same"
        ours = returns(found, plan, task, "fedqhd", encoders)
        return judged(ours, returns(found, plan, task, method, encoders))

    return judge


def apart(found: Runs, plan: Plan, method: str) -> Judge:
    """Nothing in favour of ours: the method may not be at its best. Where it is ahead even so, that
    is said."""

    def judge(task: str, encoders: str, column: int) -> str | None:
        if plan.learner(method, encoders) is None:
            return "–"
        ours = returns(found, plan, task, "fedqhd", encoders)
        difference = gap(ours, returns(found, plan, task, method, encoders))
        if difference is None:
            return None
        word = f"**{FAILS}**" if above(difference) == FAILS else "not judged"
        return f"{word} ({signed(difference)})"

    return judge


def reaching(found: Runs, plan: Plan) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str | None:
        paper = PAPER["table1"]["fedqhd"][encoders][column]
        return reaches(returns(found, plan, task, "fedqhd", encoders), paper)

    return judge


def as_little(found: Runs, plan: Plan) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str | None:
        paper = PAPER["table1"]["independent"][encoders][column]
        ours = returns(found, plan, task, "independent", encoders)
        return reproduced(ours, paper, PAPER["spread"][encoders][column])

    return judge


# Figures


def figure_claims(results: Results) -> list[Row]:
    tasks, sizes = results.plan.tasks, results.plan.sizes
    return [
        ("Figure 1: the compilation error falls as D^−1/2 (its slope −0.525)", falls(results)),
        ("Figure 3: the error drops up to m = D, then it is flat", drops(results)),
        *(
            (f"Figure 4: more clients are better, {tasks[task]} (about +30%)", more(results, task))
            for task in sizes.agent_tasks
        ),
        *(
            (f"FedQHD is better than Independent QHD if nothing else syncs the target, "
             f"{tasks[task]}", unsynced(results, task))
            for task in sizes.unsynced_tasks
        ),
    ]  # fmt: skip


def falls(results: Results) -> str | None:
    measured = next(iter(by_dimension(results).values()))
    if not measured:
        return None
    found = slopes(measured)
    mean, half = (float(x) for x in plots.interval(found))
    word = OPEN if not half <= NEAR else HOLDS if abs(mean + 0.5) <= NEAR else FAILS
    return f"**{word}**: the slope is {number(found)} (the paper's {PAPER['slope']})"


def drops(results: Results) -> str | None:
    """Steeper below m = D than above, and by more than the draws differ."""
    fixed, said = results.plan.sizes.fixed, []
    for label, by in by_anchors(results).items():
        if not by:
            return None
        if label == ALONE:
            below = max(m for m in by if m < fixed)
            word = HOLDS if by[fixed].max() < CLIFF * by[below].min() else FAILS
            said.append(
                f"{label}: **{word}**, from {by[below].mean():.2g} at m = {below} to "
                f"{by[fixed].mean():.1g} at m = D"
            )
            continue
        before, after = regimes(by, fixed)
        mean, half = (float(x) for x in plots.interval(after - before))
        said.append(
            f"{label}: **{above((mean, half))}**, the log-log slope is {number(before, 2)} up to "
            f"m = D and {number(after, 2)} from there on"
        )
    return "; ".join(said)


def more(results: Results, task: str) -> str | None:
    ends = by_clients(results, task)
    few, many = min(ends), max(ends)
    difference = gap(ends[many], ends[few])
    if difference is None:
        return None
    share = 100 * difference[0] / abs(float(np.mean(list(ends[few].values()))))
    return (
        f"**{above(difference)}**: N = {many} against N = {few} {signed(difference)}, {share:+.0f}%"
    )


def unsynced(results: Results, task: str) -> str | None:
    found = results.parts["unsynced"]
    ours, alone = (ended(found[f"{task}-{m}"]) for m in ("fedqhd", "independent"))
    if not ours or not alone:
        return None
    column = list(results.plan.tasks).index(task)
    paper = (str(PAPER["table1"][m]["shared"][column]) for m in ("fedqhd", "independent"))
    return (
        f"{judged(ours, alone)}: {shown(ours)} against {shown(alone)}; "
        f"the paper's are {' and '.join(paper)}"
    )
