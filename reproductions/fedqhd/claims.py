"""FedQHD's findings and what became of them, decided by the measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedrl.report import plots
from reproductions.fedagent.numbers import FAILS, HOLDS, OPEN, above
from reproductions.fedqhd import numbers, sides
from reproductions.fedqhd.methods import ENCODERS, TASKS, learner
from reproductions.fedqhd.numbers import SLOPE, SPREAD, TABLE1, BySeed, Found
from reproductions.fedqhd.results import Results
from reproductions.markdown import number, table

NEAR = 0.1
"""How far from −1/2 a slope may be."""
CLIFF = 0.01
"""What m = D leaves of an error, at most, if it ends there."""
Judge = Callable[[str, str, int], str]
"""Of a task, its encoders and its column in the paper's tables."""


def claims(results: Results) -> str:
    found = results.parts["table"]
    head = ["the paper says", *(f"{title}, {e}" for title in TASKS.values() for e in ENCODERS)]
    rows = [
        row("FedQHD reaches the paper's return", reaching(found)),
        row("FedQHD is better than Independent QHD", better(found, "independent")),
        row("better than Truncate FedAvg-QHD", better(found, "truncate")),
        row("better than FedAvg-DQN", apart(found, "feddqn")),
        row("better than Distillation FedDQN", apart(found, "distill")),
        row("Independent QHD learns as little as the paper's", as_little(found)),
    ]
    return f"""## What the paper says and what came out

Differences of returns with 95% t-intervals, methods against each other seed by seed. *Better* holds
if the whole interval lies above 0, does not hold if it lies below, and is undecided otherwise.
*Reaches*: yes if our mean is at least the paper's; if not, our interval may still hold it. *As
little*: ours differs from the paper's mean by no more than the paper's deviation over seeds and our
interval.

Against the two DQNs *better* is **not judged**: they had settings with which networks fail on two
of the tasks. No try of our grid ever reached MountainCar's flag, where settings in common use do,
and on CartPole the Oracle DQN's values diverge. A method is not better than a baseline that had no
chance. One that is behind it even so *does not hold*.

{table(head, rows)}

{table(("the paper says", "here"), figures(results))}"""


def row(claim: str, judge: Judge) -> list[str]:
    return [claim, *(judge(t, e, i) for i, t in enumerate(TASKS) for e in ENCODERS)]


def returns(found: Found, task: str, method: str, encoders: str) -> BySeed:
    name = learner(method, encoders)
    return numbers.last(found.get(f"{task}-{name}")) if name else {}


def better(found: Found, method: str) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str:
        name = learner(method, encoders)
        if name is None:
            return "–"
        if name == learner("fedqhd", encoders):
            return "the same"
        ours = returns(found, task, "fedqhd", encoders)
        return numbers.judged(ours, returns(found, task, method, encoders))

    return judge


def apart(found: Found, method: str) -> Judge:
    """Nothing in favour of ours: the method may not be at its best. Where it is ahead even so, that
    is said."""

    def judge(task: str, encoders: str, column: int) -> str:
        if learner(method, encoders) is None:
            return "–"
        ours = returns(found, task, "fedqhd", encoders)
        difference = numbers.gap(ours, returns(found, task, method, encoders))
        if difference is None:
            return "not measured"
        word = f"**{FAILS}**" if above(difference) == FAILS else "not judged"
        return f"{word} ({numbers.told(difference)})"

    return judge


def reaching(found: Found) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str:
        paper = TABLE1["fedqhd"][encoders][column]
        assert paper is not None
        return numbers.reaches(returns(found, task, "fedqhd", encoders), paper)

    return judge


def as_little(found: Found) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str:
        paper, spread = TABLE1["independent"][encoders][column], SPREAD[encoders][column]
        assert paper is not None
        return numbers.reproduced(returns(found, task, "independent", encoders), paper, spread)

    return judge


# Figures


def figures(results: Results) -> list[tuple[str, str]]:
    return [
        ("Figure 1: the compilation error falls as D^−1/2 (its slope −0.525)", falls(results)),
        ("Figure 3: the error drops up to m = D, then it is flat", drops(results)),
        *(
            (f"Figure 4: more clients are better, {TASKS[task]} (about +30%)", more(results, task))
            for task in results.scale.agent_tasks
        ),
        *(
            (f"FedQHD is better than Independent QHD if nothing else syncs the target, "
             f"{TASKS[task]}", unsynced(results, task))
            for task in results.scale.unsynced_tasks
        ),
    ]  # fmt: skip


def falls(results: Results) -> str:
    measured = sides.by_dimension(results)
    if not measured:
        return "not measured"
    found = sides.slopes(next(iter(measured.values())))
    mean, half = (float(x) for x in plots.interval(found))
    word = OPEN if not half <= NEAR else HOLDS if abs(mean + 0.5) <= NEAR else FAILS
    return f"**{word}**: the slope is {number(found)} (the paper's {SLOPE})"


def drops(results: Results) -> str:
    """Steeper below m = D than above, and by more than the draws differ."""
    fixed, told = results.scale.fixed, []
    for label, by in sides.by_anchors(results).items():
        if label == sides.ALONE:
            below = max(m for m in by if m < fixed)
            word = HOLDS if by[fixed].max() < CLIFF * by[below].min() else FAILS
            told.append(
                f"{label}: **{word}**, from {by[below].mean():.2g} at m = {below} to "
                f"{by[fixed].mean():.1g} at m = D"
            )
            continue
        before, after = sides.regimes(by, fixed)
        mean, half = (float(x) for x in plots.interval(after - before))
        told.append(
            f"{label}: **{above((mean, half))}**, the log-log slope is {number(before, 2)} up to "
            f"m = D and {number(after, 2)} from there on"
        )
    return "; ".join(told) or "not measured"


def more(results: Results, task: str) -> str:
    ends = sides.by_clients(results, task)
    few, many = min(ends), max(ends)
    difference = numbers.gap(ends[many], ends[few])
    if difference is None:
        return "not measured"
    share = 100 * difference[0] / abs(float(np.mean(list(ends[few].values()))))
    return (
        f"**{above(difference)}**: N = {many} against N = {few} {numbers.told(difference)}, "
        f"{share:+.0f}%"
    )


def unsynced(results: Results, task: str) -> str:
    found = results.parts["unsynced"]
    ours, alone = (numbers.last(found[f"{task}-{m}"]) for m in ("fedqhd", "independent"))
    if not ours or not alone:
        return "not measured"
    return (
        f"{numbers.judged(ours, alone)}: {numbers.shown(ours)} against {numbers.shown(alone)}; "
        f"the paper's are {told_paper(task, ('fedqhd', 'independent'))}"
    )


def told_paper(task: str, rows: Sequence[str]) -> str:
    column = list(TASKS).index(task)
    return " and ".join(str(TABLE1[method]["shared"][column]) for method in rows)
