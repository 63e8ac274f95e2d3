"""`fedrl label`: which tasks a run's agent solves."""

from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

LABEL = """\
Play every training task once with a run's agent and write which ones it solves: the label file
of `partition.strategy = "hardness"`. A tool for simulations: it sees the tasks of all clients,
and the file says of each whether it was solved."""


def label(argv: list[str]) -> int:
    """Which tasks a run's agent solves."""
    parser = Parser("fedrl label", description=LABEL)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="to be written")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (0)")
    asked = parser.parse_args(argv)
    if asked.seed < 0:
        raise UserError(f"--seed is {asked.seed}; it must not be negative")
    from fedrl import api

    won = api.Run(asked.run).label(asked.out, asked.seed)
    print(f"{int(won.sum()):,} of {len(won):,} tasks succeed; labels: {asked.out}")
    return 0
