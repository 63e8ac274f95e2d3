"""The command `fedrl plan`."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

PLAN = """\
What clients per round (M), local steps (τ) and rounds (T) buy, by FedAgent's convergence theorem:
a bound on how far from the best a federation may end, in four parts. With RUN its constants are
measured by replaying local steps of a few clients. docs/plan.md explains the parts."""
EPILOG = """\
The theorem assumes L-smooth objectives, gradients of norm at most G, unbiased steps with variance
at most σ², clients within ζ of their mean gradient, the Polyak-Łojasiewicz condition with μ, and
plain averaging of plain gradient steps of at most 1/(Lτ). Language agents meet none of these
exactly: read proportions and directions, not the number."""

DEFAULTS = {"G": 1.0, "σ": 1.0, "ζ": 0.5, "L": 5.0, "μ": 0.5, "gap": 1.0}
"""Of gradients that are clipped to norm 1, and a success rate that has all the way to go."""
FLAGS = {
    "G": ("--G", "--gradient", "largest norm of a client's gradient"),
    "σ": ("--sigma", "--noise", "deviation of one step's gradient"),
    "ζ": ("--zeta", "--heterogeneity", "deviation of the clients' gradients from their mean"),
    "L": ("--L", "--smoothness", "Lipschitz constant of the gradients"),
    "μ": ("--mu", "--pl", "constant of the Polyak-Łojasiewicz condition"),
    "gap": ("--gap", None, "J(θ*) − J(θ_0): how far from the best the start is"),
}
REPLAYS = {"replay_clients": 4, "replays": 2, "seed": 0}


def plan(argv: list[str]) -> int:
    """Theorem 1 as a planner."""
    parser = Parser(
        "fedrl plan",
        description=PLAN,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="measure this run")
    for symbol, (short, long, meaning) in FLAGS.items():
        names = [name for name in (short, long) if name]
        parser.add_argument(
            *names, dest=symbol, type=float, metavar="X",
            help=f"{meaning} (measured, or {DEFAULTS[symbol]:g})",
        )  # fmt: skip
    number = parser.add_argument_group("the plan (the run's, or the paper's)").add_argument
    number("--clients", type=int, metavar="K", help="clients (100)")
    number("--cohort", type=int, metavar="M", help="clients per round (2)")
    number("--steps", type=int, metavar="τ", help="local steps per round (3)")
    number("--rounds", type=int, metavar="T", help="rounds (70)")
    number("--lr", type=float, metavar="η", help="local step (1/(Lτ))")
    parser.add_argument(
        "--equal", choices=("rollouts", "epochs"), default="rollouts", help="what the plans of the "
        "table share: M·τ·T (all their work), or τ·T as in the paper's sweep"
    )  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", help="draw it: .png, .svg, .pdf")
    measuring = parser.add_argument_group("measuring a run").add_argument
    measuring("--replay-clients", type=int, metavar="N", help="clients to replay (4)")
    measuring("--replays", type=int, metavar="N", help="replays per client and point (2)")
    measuring("--seed", type=int, metavar="N", help="of the replays (0)")
    return _tell(parser.parse_args(argv))


def _tell(asked: argparse.Namespace) -> int:
    from rich.console import Console

    from fedrl.algorithms.fedagent.convergence import Plan
    from fedrl.analysis import figure_file
    from fedrl.analysis import plan as planner

    path = None if asked.plot is None else figure_file.figure_path(asked.plot)  # before the work
    said = {s: v for s in DEFAULTS if (v := getattr(asked, s)) is not None}
    keys = ("cohort", "steps", "rounds", "lr")
    changed = {key: v for key in keys if (v := getattr(asked, key)) is not None}
    replace(Plan(2, 3, 70), **changed)  # what cannot be is said before the replays
    if asked.clients is not None and asked.clients < 1:
        raise UserError(f"--clients is {asked.clients}; it must be at least 1")
    how = {key: v for key in REPLAYS if (v := getattr(asked, key)) is not None}
    notes: list[str] = []
    unit = 1.0
    if asked.run is None:
        if how:
            raise UserError(
                f"--{next(iter(how)).replace('_', '-')} is for measuring a run: name it"
            )
        estimates = planner.given(said, DEFAULTS)
        base, clients = Plan(2, 3, 70), 100
    else:
        from fedrl.analysis.theorem_constants import Replay, measure

        replays = Replay(*(REPLAYS | how).values())
        console = Console(stderr=True)
        with console.status("replaying local steps …") as status:
            tell = status.update if console.is_terminal else _line
            estimates, base, clients, notes, unit = measure(asked.run, replays, said, tell)
    clients = clients if asked.clients is None else asked.clients
    problem = planner.problem_of(estimates, clients)
    longest = unit / (problem.smoothness * changed.get("steps", base.steps))
    if "lr" in changed:
        if changed["lr"] > longest * (1 + 1e-9):
            raise UserError(
                f"--lr is {changed['lr']:g}; the theorem needs a local step of at most "
                f"1/(L·steps) = {longest:.4g}"
            )
        changed["lr"] /= unit
    elif base.lr is not None and base.lr * unit > longest:
        changed["lr"] = None  # more local steps than the run's: the theorem's own step
    told = planner.PlanReport(problem, replace(base, **changed), asked.equal, estimates, notes)
    planner.show(told, Console(highlight=False))
    if path is not None:
        from fedrl.analysis.plan_figure import figure

        figure_file.save(figure(told), path)
        print(f"figure: {path}")
    return 0


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
