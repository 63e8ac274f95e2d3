"""`fedrl export`: a run's language model as an ordinary folder."""

from pathlib import Path

from fedrl.cli.parser import Parser

EXPORT = """\
Write the model of a run's newest checkpoint as an ordinary folder: LoRA's adapters are merged into
it. It loads with transformers anywhere, and as `algorithm.model` of the next run."""


def export(argv: list[str]) -> int:
    """A run's model as an ordinary folder."""
    parser = Parser("fedrl export", description=EXPORT)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="to be made")
    asked = parser.parse_args(argv)
    from fedrl.runs.agents import export as write

    print(f"model of round {write(asked.run, asked.out)}: {asked.out}")
    return 0
