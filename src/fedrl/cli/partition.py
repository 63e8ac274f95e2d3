"""`fedrl partition`: deal tasks out to clients, measure, draw."""

import argparse
import sys

from fedrl.cli.parser import Parser
from fedrl.cli.text_world import NAMED, WORLD, meanings, open_world, patience
from fedrl.core.types import UserError

PARTITION = """\
Deal a world's training tasks out to clients as a run would, print how much the clients differ, and
draw it. The strategy's knob: --omega (preference), --xi (coverage, hardness)."""


def partition(argv: list[str]) -> int:
    """Deal tasks out to clients, measure, draw."""
    from fedrl import partition as dealing
    from fedrl.analysis.figure_file import figure_path
    from fedrl.analysis.partition import command
    from fedrl.config.flag_parsing import section, split_flags

    parser = Parser(
        "fedrl partition",
        description=PARTITION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"the partition:\n{meanings(dealing.Settings)}\n\n{WORLD}",
    )
    parser.add_argument("world", metavar="WORLD", help=NAMED)
    parser.add_argument("--clients", type=int, default=100, help="how many clients (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the partition (0)")
    parser.add_argument("--plot", metavar="FILE", help="draw the clients: .png, .svg, .pdf")
    parser.add_argument(
        "--success-rate", type=float, metavar="P", help="draw success labels with this rate, to "
        "look at hardness without a label file"
    )  # fmt: skip
    asked, rest = parser.parse_known_args(argv)
    if asked.plot is not None:
        figure_path(asked.plot)  # before the work, not after it
    of_world = [pair for pair in split_flags(rest) if pair[0].startswith("world.")]
    of_partition = [pair for pair in split_flags(rest) if not pair[0].startswith("world.")]
    settings = section(dealing.Settings, of_partition, "")
    for line in settings.unread([key for key, _ in of_partition]):
        print(f"note: {line}", file=sys.stderr)
    if settings.labels and asked.success_rate is not None:
        raise UserError("--labels and --success-rate are two sources of labels; give one of them")
    labels = None
    with patience("dealing the tasks out"):
        tasks = open_world(asked.world, of_world).tasks("train")
        if asked.success_rate is not None:
            labels = dealing.draw_labels(tasks, asked.success_rate, asked.seed)
        lines = command(tasks, asked.clients, settings, asked.seed, asked.plot, labels)
    for line in lines:
        print(line)
    return 0
