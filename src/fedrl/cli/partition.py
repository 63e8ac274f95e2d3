"""`fedrl partition`: deal tasks out to clients, measure, draw."""

import sys

from fedrl.cli.parser import Parser
from fedrl.cli.text_world import NAMED, WORLD, meanings, patience

PARTITION = """\
Deal a world's training tasks out to clients as a run would, print how much the clients differ, and
draw it. The strategy's knob: --omega (preference), --xi (coverage, hardness), --divergence
(scenes). With --strategy own --folder DATA nothing is dealt: it tells what each client's folder
holds."""


def partition(argv: list[str]) -> int:
    """Deal tasks out to clients, measure, draw."""
    from fedrl import api
    from fedrl import partition as dealing
    from fedrl.analysis.figure_file import figure_path
    from fedrl.analysis.partition import lines

    parser = Parser(
        "fedrl partition",
        description=PARTITION,
        epilog=f"the partition:\n{meanings(dealing.Settings)}\n\n{WORLD}",
    )
    parser.add_argument("world", metavar="WORLD", help=NAMED)
    parser.add_argument(
        "--clients", type=int, help="how many clients (100; with --strategy own those there are)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the partition (0)")
    parser.add_argument("--plot", metavar="FILE", help="draw the clients: .png, .svg, .pdf")
    parser.add_argument(
        "--success-rate", type=float, metavar="P", help="draw success labels with this rate, to "
        "look at hardness without a label file"
    )  # fmt: skip
    asked, rest = parser.parse_known_args(argv)
    if asked.plot is not None:
        figure_path(asked.plot)  # before the work, not after it
    with patience("dealing the tasks out"):
        found = api.partition_tasks(
            asked.world,
            asked.clients,
            seed=asked.seed,
            success_rate=asked.success_rate,
            flags=rest,
        )
    for line in found.notes:
        print(f"note: {line}", file=sys.stderr)
    for line in [*found.own, *lines(found.measures)]:
        print(line)
    if asked.plot is not None:
        print(f"figure: {api.draw(found, asked.plot)}")
    return 0
