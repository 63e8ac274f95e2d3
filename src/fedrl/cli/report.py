"""`fedrl report`: one page with curves and tables."""

import argparse
from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

REPORT = """\
One page with curves and tables; runs that differ only in their seed form a band. The folder of a
sweep, or of a recipe's runs, stands for all in it."""


def report(argv: list[str]) -> int:
    """Draw one page with curves and tables; several runs are compared."""
    parser = Parser("fedrl report", description=REPORT)
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="run folders, or a sweep's"
    )
    parser.add_argument("--out", type=Path, metavar="PAGE", help="RUN/report.html by default")
    parser.add_argument(
        "--episodes", action=argparse.BooleanOptionalAction, help="language agents: play some "
        "evaluation tasks to show (by default where that is quick: on a GPU, or with a small model)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    if not asked.runs:
        raise UserError("name at least one run: fedrl report runs/NAME/METHOD-s0-…")
    from fedrl import api
    from fedrl.runs.read import runs_in

    runs = api.Runs(api.Run(run) for place in asked.runs for run in runs_in(place))
    out, title = asked.out, ""
    if len(asked.runs) == 1 and runs[0].path != asked.runs[0]:
        title = asked.runs[0].resolve().name
        out = out or asked.runs[0] / "report.html"
    page = runs.report(out, title, episodes=asked.episodes)
    if len(runs) > 1:
        print(runs.summary())
    print(f"report: {page}")
    return 0
