"""`fedrl plan`: what clients per round, local steps and rounds buy, by FedAgent's Theorem 1.

The bound and its assumptions are in `algorithms/fedagent/convergence.py`; here it becomes a table
of plans that cost the same, and advice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedrl.algorithms.fedagent.convergence import Plan, Problem, Terms, best_lr, bound, step_share
from fedrl.core.types import UserError

Equal = Literal["rollouts", "epochs"]
"""What the plans of a table share: M·τ·T (all their work), or τ·T (as in the paper's sweep)."""

FLAGS = {"σ": "sigma", "ζ": "zeta", "μ": "mu"}
"""Constants whose symbol is not the name of their flag."""

PAPER_STEPS = (1, 3, 5)
"""Local epochs per round that the paper compares."""

WORDS = {
    "transient": "what is left of the start",
    "noise": "noise of the clients' gradients",
    "sampling": "not everybody takes part",
    "drift": "clients drift apart between rounds",
}
REMEDIES = {
    "transient": "more rounds (T) are what helps",
    "noise": "more clients per round (M), or larger batches of tasks, are what helps",
    "sampling": "more clients per round (M), or clients that differ less, are what helps",
    "drift": "fewer local steps per round (τ) are what helps",
}


class Estimate(NamedTuple):
    """One of the theorem's constants: its value, and where it comes from."""

    symbol: str
    value: float
    origin: str


class Row(NamedTuple):
    plan: Plan
    terms: Terms


@dataclass(frozen=True)
class PlanReport:
    """Everything that is printed and drawn."""

    problem: Problem
    plan: Plan
    equal: Equal
    estimates: Sequence[Estimate]
    notes: Sequence[str] = ()

    @property
    def now(self) -> Terms:
        return bound(self.problem, self.plan)


def grid(problem: Problem, plan: Plan, equal: Equal) -> list[Row]:
    """Plans around this one that cost the same; T is what is left of the budget.

    The step keeps its share of the theorem's 1/(Lτ): with more local steps each is shorter.
    """
    cohorts = {1, plan.cohort, plan.cohort * 2, plan.cohort * 4, max(1, plan.cohort // 2)}
    plans = (
        at_equal_cost(problem, plan, equal, cohort, steps)
        for cohort in sorted(c for c in cohorts if c <= problem.clients)
        for steps in sorted({*PAPER_STEPS, plan.steps})
    )
    return [Row(other, bound(problem, other)) for other in plans if other is not None]


def at_equal_cost(
    problem: Problem, plan: Plan, equal: Equal, cohort: int, steps: int
) -> Plan | None:
    """As many whole rounds as the budget pays for; None if it does not pay for one."""
    if (cohort, steps) == (plan.cohort, plan.steps):
        return plan
    rounds = budget(plan, equal) // (steps * (cohort if equal == "rollouts" else 1))
    if rounds < 1:
        return None
    return Plan(cohort, steps, rounds, _same_share(problem, plan, steps))


def budget(plan: Plan, equal: Equal) -> int:
    """What plans of one table share."""
    return plan.total if equal == "rollouts" else plan.steps * plan.rounds


def _same_share(problem: Problem, plan: Plan, steps: int) -> float | None:
    if plan.lr is None:
        return None
    return step_share(problem, plan) / (problem.smoothness * steps)


def advice(report: PlanReport) -> Iterator[str]:
    """What the bound says in words, largest term first."""
    problem, plan, now = report.problem, report.plan, report.now
    share = getattr(now, now.largest) / now.total
    yield (
        f"The largest part is {now.largest} ({share:.0%}: {WORDS[now.largest]}); "
        f"{REMEDIES[now.largest]}."
    )
    changes = {}
    if plan.cohort * 2 <= problem.clients:
        changes[f"M = {plan.cohort * 2} instead of {plan.cohort}, twice the work"] = replace(
            plan, cohort=plan.cohort * 2
        )
    if plan.steps > 1:
        fewer = plan.steps // 2
        lr = _same_share(problem, plan, fewer)
        changes[f"τ = {fewer} instead of {plan.steps}, {fewer / plan.steps:.0%} of the work"] = (
            replace(plan, steps=fewer, lr=lr)
        )
    changes[f"T = {plan.rounds * 2} instead of {plan.rounds}, twice the work"] = replace(
        plan, rounds=plan.rounds * 2
    )
    lr = best_lr(problem, plan)
    factor = lr / (plan.lr or 1 / (problem.smoothness * plan.steps))
    changes[f"Local steps η {factor:.2g} times as long, the same work"] = replace(plan, lr=lr)
    for what, other in changes.items():
        after = bound(problem, other).total
        yield f"{what}: {now.total:.3g} → {after:.3g} ({_percent(after / now.total - 1)})."
    best = min(grid(problem, plan, report.equal), key=lambda row: row.terms.total)
    if best.plan != plan:
        of = "M·τ·T" if report.equal == "rollouts" else "τ·T"
        yield (
            f"Of the plans with the same {of} in the table the best is M = {best.plan.cohort}, "
            f"τ = {best.plan.steps}, T = {best.plan.rounds}: {best.terms.total:.3g}."
        )
    if now.total >= problem.gap:
        least = step_share(problem, plan) * (1 + (problem.noise / problem.gradient) ** 2)
        needed = (
            " With this step it can promise progress only for more than (1 + σ²/G²)·Lητ = "
            f"{least:.3g} clients per round."
        )
        yield (
            f"The bound is above the gap at the start ({problem.gap:.4g}): as a number it promises "
            "nothing, only its proportions speak." + (needed if least >= plan.cohort else "")
        )


def _percent(change: float) -> str:
    return f"{change:+.0%}".replace("-", "−") if abs(change) >= 0.005 else "less than 1%"


def show(report: PlanReport, console: Console) -> None:
    """The constants, the table and the advice; what is wrong with the plan comes before them."""
    lines = (*advice(report), *report.notes)
    known = Table(title="What the theorem is told", title_justify="left", box=SIMPLE)
    for column in ("", "value", "from"):
        known.add_column(column, justify="right" if column == "value" else "left")
    for estimate in report.estimates:
        known.add_row(estimate.symbol, f"{estimate.value:.4g}", estimate.origin)
    console.print(known)
    equal = "M·τ·T" if report.equal == "rollouts" else "τ·T"
    size = budget(report.plan, report.equal)
    title = f"Bound on J(θ*) − J for plans of {equal} = {size:,}"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for column in ("M", "τ", "T", *Terms._fields, "bound", "largest", ""):
        table.add_column(column, justify="left" if column in ("largest", "") else "right")
    rows = grid(report.problem, report.plan, report.equal)
    best = min(row.terms.total for row in rows)
    for row in rows:
        mine, plan = row.plan == report.plan, row.plan
        marks = ["← now"] * mine + ["lowest"] * (row.terms.total == best)
        table.add_row(
            *map(str, (plan.cohort, plan.steps, plan.rounds)),
            *(f"{term:.3g}" for term in row.terms), f"{row.terms.total:.3g}", row.terms.largest,
            ", ".join(marks), style="bold" if mine else "",
        )  # fmt: skip
    console.print(table)
    for line in lines:
        console.print(f"• {line}", soft_wrap=True, markup=False)


def require(said: Mapping[str, float]) -> None:
    """What somebody says of the theorem's constants must be possible, before anything is measured.

    Noise and heterogeneity may be zero.
    """
    for symbol, value in said.items():
        flag = FLAGS.get(symbol, symbol)
        if symbol in ("σ", "ζ"):
            if not 0 <= value < math.inf:
                raise UserError(f"--{flag} is {value:g}; it must be finite and not negative")
        elif not 0 < value < math.inf:
            raise UserError(f"--{flag} is {value:g}; it must be finite and above 0")


def given(values: Mapping[str, float], defaults: Mapping[str, float]) -> list[Estimate]:
    """The constants without a run: flags where there are any, else the defaults."""
    return [
        Estimate(symbol, values.get(symbol, default), "you" if symbol in values else "default")
        for symbol, default in defaults.items()
    ]


def problem_of(estimates: Sequence[Estimate], clients: int) -> Problem:
    known = {estimate.symbol: estimate.value for estimate in estimates}
    return Problem(
        known["G"], known["σ"], known["ζ"], known["L"], known["μ"], known["gap"], clients
    )
