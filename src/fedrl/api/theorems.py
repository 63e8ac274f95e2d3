"""`fedrl.plan` and `fedrl.gap`: what FedAgent's and FedQHD's theorems say, of numbers or of a run.

`fedrl.draw` draws what they return.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from fedrl.core.types import Json, UserError

if TYPE_CHECKING:
    from fedrl.analysis.federation_gap import GapReport
    from fedrl.analysis.plan import Equal, PlanReport

DEFAULTS = {"G": 1.0, "σ": 1.0, "ζ": 0.5, "L": 5.0, "μ": 0.5, "gap": 1.0}
"""Of gradients that are clipped to norm 1, and a success rate that has all the way to go."""
REPLAYS = {"replay_clients": 4, "replays": 2, "seed": 0}
PAPER = (2, 3, 70)
"""Clients per round, local steps and rounds that the paper trains with, of 100 clients."""


def plan(
    run: str | Path | None = None,
    *,
    gradient: float | None = None,
    noise: float | None = None,
    heterogeneity: float | None = None,
    smoothness: float | None = None,
    pl: float | None = None,
    gap: float | None = None,
    clients: int | None = None,
    cohort: int | None = None,
    steps: int | None = None,
    rounds: int | None = None,
    lr: float | None = None,
    equal: Equal = "rollouts",
    replay_clients: int | None = None,
    replays: int | None = None,
    seed: int | None = None,
) -> PlanReport:
    """What clients per round, local steps and rounds buy, by FedAgent's Theorem 1.

    The constants G, σ, ζ, L, μ and J(θ*) − J(θ_0), in this order, and the plan are as given; what
    is not given is measured by replaying local steps of `run`, or usual.
    """
    from fedrl.algorithms.fedagent.convergence import Plan
    from fedrl.analysis import plan as planner

    constants = zip(DEFAULTS, (gradient, noise, heterogeneity, smoothness, pl, gap), strict=True)
    said = {symbol: value for symbol, value in constants if value is not None}
    wanted: Json = {"cohort": cohort, "steps": steps, "rounds": rounds, "lr": lr}
    changed = {key: value for key, value in wanted.items() if value is not None}
    replace(Plan(*PAPER), **changed)  # what cannot be is said before the replays
    if clients is not None and clients < 1:
        raise UserError(f"--clients is {clients}; it must be at least 1")
    asked = {"replay_clients": replay_clients, "replays": replays, "seed": seed}
    how = {key: value for key, value in asked.items() if value is not None}
    notes: list[str] = []
    unit = 1.0
    if run is None:
        if how:
            raise UserError(
                f"--{next(iter(how)).replace('_', '-')} is for measuring a run: name it"
            )
        estimates = planner.given(said, DEFAULTS)
        base, count = Plan(*PAPER), 100
    else:
        from fedrl.analysis.theorem_constants import Replay, measure

        replay = Replay(*(REPLAYS | how).values())
        console = Console(stderr=True)
        with console.status("replaying local steps …") as status:
            tell = status.update if console.is_terminal else logging.getLogger("fedrl").info
            estimates, base, count, notes, unit = measure(Path(run), replay, said, tell)
    problem = planner.problem_of(estimates, count if clients is None else clients)
    longest = unit / (problem.smoothness * (steps or base.steps))
    if lr is not None:
        if lr > longest * (1 + 1e-9):
            raise UserError(
                f"--lr is {lr:g}; the theorem needs a local step of at most "
                f"1/(L·steps) = {longest:.4g}"
            )
        changed["lr"] = lr / unit
    elif base.lr is not None and base.lr * unit > longest:
        changed["lr"] = None  # more local steps than the run's: the theorem's own step
    return planner.PlanReport(problem, replace(base, **changed), equal, estimates, notes)


def gap(
    run: str | Path,
    *,
    states: int = 400,
    seed: int = 0,
    reference: str | Path | None = None,
    held_out: Literal["rollouts", "box"] = "rollouts",
) -> GapReport | None:
    """What agreeing on anchors costs each client of a FedQHD run, by the paper's Theorem 2.

    None where one encoder serves all clients: there is nothing to measure.
    """
    from fedrl.analysis import federation_gap as gaps

    if gaps.is_shared(Path(run)):
        return None
    other = None if reference is None else Path(reference)
    return gaps.measure(Path(run), states, seed, other, held_out)
