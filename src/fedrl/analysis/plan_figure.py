"""The planner's figure: the bound in its four parts, for plans that cost the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fedrl.algorithms.fedagent.convergence import Plan, Terms, bound
from fedrl.analysis.plan import WORDS, PlanReport, at_equal_cost
from fedrl.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POWERS = tuple(2**i for i in range(20))
"""Clients per round that are compared."""


def figure(report: PlanReport) -> Figure:
    """Three panels: M and τ at equal cost, and T for what the cost itself buys."""
    import matplotlib

    problem, plan, equal = report.problem, report.plan, report.equal
    cohorts = sorted(
        {plan.cohort, *(c for c in POWERS if c <= min(8 * plan.cohort, problem.clients))}
    )
    cohorts = cohorts[-7:]  # around a large M the smallest are of no interest
    steps = sorted({1, 2, 3, 5, 10, 20, plan.steps})
    budget = "M·τ·T" if equal == "rollouts" else "τ·T"
    by_cohort = (at_equal_cost(problem, plan, equal, c, plan.steps) for c in cohorts)
    by_steps = (at_equal_cost(problem, plan, equal, plan.cohort, s) for s in steps)
    by_rounds = (
        replace(plan, rounds=max(1, round(plan.rounds * factor)))
        for factor in (0.25, 0.5, 1, 2, 4, 8)
    )
    panels = {
        f"clients per round M (equal {budget})": {p.cohort: p for p in by_cohort if p},
        f"local steps τ (equal {budget})": {p.steps: p for p in by_steps if p},
        "rounds T (the cost grows with them)": {p.rounds: p for p in by_rounds},
    }
    result, row = plots.figure(len(panels))
    with matplotlib.rc_context(plots.STYLE):
        for axes, (label, plans) in zip(row, panels.items(), strict=True):
            bars(axes, {x: bound(problem, p) for x, p in plans.items()}, _place(plan, plans))
            axes.set_xlabel(label)
        top = max(axes.get_ylim()[1] for axes in row)
        for axes in row:
            axes.set_ylim(0, top)
        row[0].set_title("bound on J(θ*) − J")
        plots.legend(result, row[0])
    return result


def _place(plan: Plan, plans: Mapping[int, Plan]) -> int:
    return next(i for i, other in enumerate(plans.values()) if other == plan)


def bars(axes: Axes, rows: Mapping[int, Terms], mine: int) -> None:
    """One stacked bar per plan; the present plan's number is bold."""
    at, height = range(len(rows)), [0.0] * len(rows)
    for index, name in enumerate(Terms._fields):
        values = [getattr(terms, name) for terms in rows.values()]
        axes.bar(
            at, values, 0.72, height, color=plots.PALETTE[index], label=f"{name}: {WORDS[name]}"
        )
        height = [below + value for below, value in zip(height, values, strict=True)]
    axes.set_xticks(list(at), [str(x) for x in rows])
    axes.get_xticklabels()[mine].set_fontweight("bold")
    axes.grid(visible=False, axis="x")
