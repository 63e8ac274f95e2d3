"""`fedrl parity`: replay recorded transcripts against our engines."""

from pathlib import Path

from fedrl.cli.parser import Parser

PARITY = """\
Replay recorded transcripts of the real engines against ours: household FILE… or webshop FOLDER.
One line per file; exit code 1 on any mismatch."""


def parity(argv: list[str]) -> int:
    """Replay recorded transcripts against our engines."""
    parser = Parser("fedrl parity", description=PARITY)
    parser.add_argument(
        "world", choices=("household", "webshop"), metavar="WORLD", help="household or webshop"
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="FILE… or FOLDER")
    parser.add_argument(
        "--data", type=Path, help="folder with the real data (FEDRL_DATA, a folder `data` beside "
        "the transcripts' own, or the cache of `fedrl data`)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    from fedrl import api

    lines = api.parity(asked.world, asked.paths, data=asked.data)
    for line in lines:
        print(line, flush=True)
        for example in line.examples:
            print(f"  {example}")
    return 0 if all(line.passed for line in lines) else 1
