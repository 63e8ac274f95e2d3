"""`fedrl warmstart`: imitate the expert on public tasks, or read public reviews."""

from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.cli.text_world import NAMED, meanings

REVIEWS = "imdb"
"""The world whose warm start reads; in the others an expert plays."""


WARMSTART = """\
Teach a model to act by imitating the world's expert on PUBLIC tasks, which no client trains on and
nobody is evaluated on; for imdb, to write by reading public reviews. The result is an ordinary
model folder for `algorithm.model`."""


def warmstart(argv: list[str]) -> int:
    """Imitate the expert on public tasks, or read public reviews."""
    from fedrl.runs import warmstart as playing
    from fedrl.runs import warmstart_reviews as reading

    parser = Parser(
        "fedrl warmstart",
        description=WARMSTART,
        epilog=f"the imitation:\n{meanings(playing.Settings)}\n\nthe reading (imdb):\n"
        f"{meanings(reading.Settings)}\n\nThe world's settings: --world.KEY VALUE.",
    )
    parser.add_argument("world", metavar="WORLD", help=f"{NAMED}; or {REVIEWS}")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="to be made")
    asked, rest = parser.parse_known_args(argv)
    from fedrl import api

    print(f"model: {api.warm_start(asked.world, asked.out, flags=rest, progress=True)}")
    return 0
