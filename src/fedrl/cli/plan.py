"""The command `fedrl plan`."""

import argparse
from pathlib import Path

from fedrl.cli.parser import Parser

PLAN = """\
What clients per round (M), local steps (τ) and rounds (T) buy, by FedAgent's convergence theorem:
a bound on how far from the best a federation may end, in four parts. With RUN its constants are
measured by replaying local steps of a few clients. docs/plan.md explains the parts."""
EPILOG = """\
The theorem assumes L-smooth objectives, gradients of norm at most G, unbiased steps with variance
at most σ², clients within ζ of their mean gradient, the Polyak-Łojasiewicz condition with μ, and
plain averaging of plain gradient steps of at most 1/(Lτ). Language agents meet none of these
exactly: read proportions and directions, not the number."""

FLAGS = {
    "--gradient": ("--G", "largest norm of a client's gradient"),
    "--noise": ("--sigma", "deviation of one step's gradient"),
    "--heterogeneity": ("--zeta", "deviation of the clients' gradients from their mean"),
    "--smoothness": ("--L", "Lipschitz constant of the gradients"),
    "--pl": ("--mu", "constant of the Polyak-Łojasiewicz condition"),
    "--gap": (None, "J(θ*) − J(θ_0): how far from the best the start is"),
}
"""Of each constant, its short name and its meaning, in the order of their usual values."""


def plan(argv: list[str]) -> int:
    """Theorem 1 as a planner."""
    from fedrl.api.theorems import DEFAULTS

    parser = Parser(
        "fedrl plan",
        description=PLAN,
        epilog=EPILOG,
    )
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="measure this run")
    for (long, (short, meaning)), usual in zip(FLAGS.items(), DEFAULTS.values(), strict=True):
        parser.add_argument(
            *filter(None, (short, long)), dest=long.removeprefix("--"), type=float, metavar="X",
            help=f"{meaning} (measured, or {usual:g})",
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

    from fedrl import api
    from fedrl.analysis.figure_file import figure_path
    from fedrl.analysis.plan import show

    if asked.plot is not None:
        figure_path(asked.plot)  # before the work
    said = {name: value for name, value in vars(asked).items() if name not in ("run", "plot")}
    told = api.plan(asked.run, **said)
    show(told, Console(highlight=False))
    if asked.plot is not None:
        print(f"figure: {api.draw(told, asked.plot)}")
    return 0
