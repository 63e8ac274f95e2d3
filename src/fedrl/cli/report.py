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
        "runs", nargs="*", metavar="RUN", help="run folders, a sweep's, or a pattern of them"
    )
    parser.add_argument(
        "--out", type=Path, metavar="PAGE", help="the page, with its figures and numbers beside it "
        "(FOLDER/report.html of a run's folder or a sweep's; of several runs, report.html here)"
    )  # fmt: skip
    parser.add_argument(
        "--episodes", action=argparse.BooleanOptionalAction, help="language agents: play some "
        "evaluation tasks to show (by default where that is quick: on a GPU, or with a small model)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    if not asked.runs:
        raise UserError("name at least one run: fedrl report runs/NAME/METHOD-s0-…")
    from fedrl import api
    from fedrl.runs.read import runs_named

    runs = api.Runs(api.Run(run) for name in asked.runs for run in runs_named(name))
    if not runs:
        raise UserError(f"no run is called {', '.join(asked.runs)}")
    out, title = asked.out, ""
    first = Path(asked.runs[0])
    if len(asked.runs) == 1 and first.is_dir() and runs[0].path != first:
        title = first.resolve().name
        out = out or first / "report.html"
    elif len(runs) > 1:
        out = out or Path("report.html")
    replaced = out is not None and out.is_file()
    page = runs.report(out, title, episodes=asked.episodes)
    if len(runs) > 1:
        print(runs.summary())
    print(f"report: {page}{', replaced (another place: --out PAGE)' if replaced else ''}")
    return 0
