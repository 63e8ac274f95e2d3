"""The command `fedrl gap`."""

import json
import sys
from pathlib import Path

from fedrl.cli.parser import Parser

GAP = """\
What agreeing on anchors costs each client of a FedQHD run with own encoders: the terms of the
paper's Theorem 2, measured on the newest checkpoint, beside the gap itself. docs/fedqhd.md explains
the terms."""
EPILOG = """\
Norms, angles and errors are those on the m anchors and n held-out states. The time grows with the
cube of m + n, and with the square of the number of clients."""


def gap(argv: list[str]) -> int:
    """Theorem 2 on a run."""
    parser = Parser(
        "fedrl gap",
        description=GAP,
        epilog=EPILOG,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--reference", type=Path, metavar="RUN", help="take Q* from this run, an Oracle say "
        "(the mean of what the clients hold)"
    )  # fmt: skip
    parser.add_argument(
        "--states", type=int, default=400, metavar="N", help="held-out states (400)"
    )
    parser.add_argument(
        "--held-out", choices=("rollouts", "box"), default="rollouts", help="where they come from: "
        "random play, or the box of plausible states, which has what random play never sees"
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of these states (0)")
    parser.add_argument("--json", action="store_true", help="print the numbers for programs")
    parser.add_argument("--plot", metavar="FILE", help="draw it: .png, .svg, .pdf")
    asked = parser.parse_args(argv)

    from fedrl import api
    from fedrl.analysis import federation_gap as gaps
    from fedrl.analysis.figure_file import figure_path

    if asked.plot is not None:
        figure_path(asked.plot)  # before the work
    told = api.gap(
        asked.run,
        states=asked.states,
        seed=asked.seed,
        reference=asked.reference,
        held_out=asked.held_out,
    )
    if told is None:
        print(json.dumps({"note": gaps.SHARED}) if asked.json else gaps.SHARED)
        return 0
    if asked.json:
        print(json.dumps(gaps.as_json(told), indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        gaps.show(told, Console(highlight=False))
    if asked.plot is not None:
        drawn = api.draw(told, asked.plot)
        print(f"figure: {drawn}", file=sys.stderr if asked.json else sys.stdout)
    return 0
