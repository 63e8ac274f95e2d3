"""`fedrl warmstart`: imitate the expert on public tasks, or read public reviews."""

import argparse
from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.cli.text_world import NAMED, meanings, open_world

REVIEWS = "imdb"
"""The world whose warm start reads; in the others an expert plays."""


WARMSTART = """\
Teach a model to act by imitating the world's expert on PUBLIC tasks, which no client trains on and
nobody is evaluated on; for imdb, to write by reading public reviews. The result is an ordinary
model folder for `algorithm.model`."""


def warmstart(argv: list[str]) -> int:
    """Imitate the expert on public tasks, or read public reviews."""
    from fedrl.config.flag_parsing import section, split_flags
    from fedrl.runs import warmstart as playing
    from fedrl.runs import warmstart_reviews as reading

    parser = Parser(
        "fedrl warmstart",
        description=WARMSTART,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"the imitation:\n{meanings(playing.Settings)}\n\nthe reading (imdb):\n"
        f"{meanings(reading.Settings)}\n\nThe world's settings: --world.KEY VALUE.",
    )
    parser.add_argument("world", metavar="WORLD", help=f"{NAMED}; or {REVIEWS}")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="to be made")
    asked, rest = parser.parse_known_args(argv)
    pairs = split_flags(rest)
    ours = [pair for pair in pairs if not pair[0].startswith("world.")]
    theirs = [pair for pair in pairs if pair[0].startswith("world.")]
    if asked.world == REVIEWS:
        from fedrl.envs.imdb import world as imdb

        settings = section(reading.Settings, ours, "")
        reviews = imdb.World(section(imdb.Settings, theirs, "world."), 0, 0)
        print(f"model: {reading.warmstart(reviews, settings, asked.out)}")
    else:
        how = section(playing.Settings, ours, "")
        print(f"model: {playing.warmstart(open_world(asked.world, theirs), how, asked.out)}")
    return 0
