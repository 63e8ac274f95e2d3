"""`fedrl label`: which tasks a run's agent, or a model before any training, solves."""

from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

LABEL = """\
Play every training task once with an agent and write which ones it solves: the label file of
`partition.strategy = "hardness"`. The agent is a run's, or with --recipe a model before any
training (a folder, GGUF file or Hugging Face id), in the recipe's world and with its prompts;
flags change the recipe's settings as in `fedrl run`. A tool for simulations: it sees the tasks of
all clients, and the file says of each whether it was solved."""


def label(argv: list[str]) -> int:
    """Which tasks an agent solves."""
    parser = Parser("fedrl label", description=LABEL)
    parser.add_argument("agent", metavar="RUN|MODEL", help="a run's folder; with --recipe a model")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="to be written")
    parser.add_argument("--recipe", metavar="RECIPE", help="whose world the model plays in")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (0)")
    asked, flags = parser.parse_known_args(argv)
    if asked.seed < 0:
        raise UserError(f"--seed is {asked.seed}; it must not be negative")
    from fedrl import api

    if asked.recipe:
        won = api.label_model(asked.agent, asked.recipe, asked.out, seed=asked.seed, flags=flags)
    elif flags:
        raise UserError(
            f"{flags[0]} is for a model: fedrl label MODEL --recipe RECIPE {flags[0]} …"
        )
    else:
        won = api.Run(asked.agent).label(asked.out, asked.seed)
    print(f"{int(won.sum()):,} of {len(won):,} tasks succeed; labels: {asked.out}")
    return 0
