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
    data = _data(asked.data, asked.paths[0], {"household": "alfworld"}.get(asked.world, "webshop"))
    if asked.world == "household":
        from fedrl.envs.household.parity import replay

        lines = replay(asked.paths, data)
    else:
        from fedrl.envs.webshop.parity import replay as replay_shop

        folders = {path if path.is_dir() else path.parent: None for path in asked.paths}
        lines = [line for folder in folders for line in replay_shop(folder, data)]
    for line in lines:
        print(line, flush=True)
        for example in line.examples:
            print(f"  {example}")
    return 0 if all(line.passed for line in lines) else 1


def _data(given: Path | None, transcripts: Path, name: str) -> Path:
    """Where the real data lies: said, by FEDRL_DATA, beside the transcripts, or in the cache."""
    import os

    from fedrl.datasets.fetch import root

    beside = transcripts.resolve().parent
    beside = (transcripts.resolve() if transcripts.is_dir() else beside).parent / "data" / name
    if given is not None:
        return given / name if (given / name).is_dir() else given
    if not os.environ.get("FEDRL_DATA") and beside.is_dir():
        return beside
    return root(name)
