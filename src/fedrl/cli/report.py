"""`fedrl report`: one page with curves and tables."""

import argparse
from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

REPORT = "One page with curves and tables; runs that differ only in their seed form a band."


def report(argv: list[str]) -> int:
    """Draw one page with curves and tables; several runs are compared."""
    parser = Parser("fedrl report", description=REPORT)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folders")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="RUN/report.html by default")
    parser.add_argument(
        "--episodes", action=argparse.BooleanOptionalAction, help="language agents: play some "
        "evaluation tasks to show (by default where that is quick: on a GPU, or with a small model)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    if not asked.runs:
        raise UserError("name at least one run: fedrl report runs/NAME/METHOD-s0-…")
    from fedrl import api

    runs = api.Runs(map(api.Run, asked.runs))
    print(f"report: {runs.report(asked.out, episodes=asked.episodes)}")
    return 0
