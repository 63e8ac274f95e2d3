"""The commands around the text worlds: play, partition, parity, data."""

import argparse
import dataclasses
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.cli.parser import Parser
from fedrl.core.registry import load, look_up, suggestion
from fedrl.core.types import UserError

if TYPE_CHECKING:
    from fedrl.envs.text import TextWorld

TEXT_WORLDS = ("household", "webshop")

PLAY = """\
Play a world yourself. The household is played in the terminal; the shop opens a page on this
machine only (127.0.0.1)."""
PARTITION = """\
Deal a world's training tasks out to clients as a run would, print how much the clients differ, and
draw it. The strategy's knob: --omega (preference), --xi (coverage, hardness)."""
PARITY = """\
Replay recorded transcripts of the real engines against ours: household FILE… or webshop FOLDER.
One line per file; exit code 1 on any mismatch."""
WORLD = "Settings of the world are flags, as in `fedrl run`; `fedrl play WORLD --help` lists them."
DATA = "Download real data from its publisher, check its sha256 and keep it; without NAME, a list."


def play(argv: list[str]) -> int:
    """The household in the terminal, the shop in the browser."""
    from fedrl.config.flag_parsing import split_flags

    parser = Parser(
        "fedrl play",
        description=PLAY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_world_help(argv),
    )
    parser.add_argument("world", choices=TEXT_WORLDS, metavar="WORLD", help="household or webshop")
    parser.add_argument("--task", help="the id of a task; one of the split otherwise")
    parser.add_argument("--split", help="which tasks to choose from (default: for evaluation)")
    parser.add_argument("--port", type=int, default=0, help="of the shop's page (any free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")
    asked, rest = parser.parse_known_args(argv)
    if asked.world == "household" and asked.port:
        raise UserError("--port is for the shop's page; the household is played in the terminal")
    with patience("opening the world"):
        world = open_world(asked.world, split_flags(rest))
    split = asked.split or world.splits[1]
    if split not in world.splits:
        raise UserError(f"--split is {split!r}; {suggestion(split, list(world.splits))}")
    if asked.world == "household":
        from fedrl.play.terminal import play as in_terminal

        return in_terminal(world, split, asked.task)  # type: ignore[arg-type]
    from fedrl.play.shop_server import serve

    return serve(world, asked.port, asked.task, split, not asked.no_browser)  # type: ignore[arg-type]


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
    parser.add_argument("world", choices=TEXT_WORLDS, metavar="WORLD", help="household or webshop")
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


def parity(argv: list[str]) -> int:
    """Replay recorded transcripts against our engines."""
    parser = Parser("fedrl parity", description=PARITY)
    parser.add_argument("world", choices=TEXT_WORLDS, metavar="WORLD", help="household or webshop")
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


def data(argv: list[str]) -> int:
    """Get real data from its publisher."""
    from fedrl.datasets import DATASETS
    from fedrl.datasets.command import command

    parser = Parser("fedrl data", description=DATA)
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(DATASETS))
    parser.add_argument("--yes", action="store_true", help="agree to the licence without asking")
    asked = parser.parse_args(argv)
    return command(asked.name, asked.yes)


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


def open_world(name: str, flags: list[tuple[str, str | None]]) -> "TextWorld":
    """The text world with the settings that the `--world.…` flags name."""
    from fedrl.config.flag_parsing import section
    from fedrl.envs import WORLDS

    module = load(look_up(WORLDS, "world", name), "world", name)
    return module.World(section(module.Settings, flags, "world."), 0, 0)


def _world_help(argv: list[str]) -> str:
    """The settings of the world that is asked about, where it can be loaded."""
    from fedrl.envs import WORLDS

    if not argv or argv[0] not in TEXT_WORLDS or not {"-h", "--help"} & set(argv):
        return WORLD
    module = load(look_up(WORLDS, "world", argv[0]), "world", argv[0])
    return f"the world:\n{meanings(module.Settings, 'world.')}"


@contextmanager
def patience(what: str) -> Iterator[None]:
    """A sign of life for work that turns out to take more than two seconds."""
    timer = threading.Timer(2.0, print, (f"{what} …",), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def meanings(settings: type, prefix: str = "") -> str:
    """The flags of a settings class with the comments above its fields, for a help text."""
    from fedrl.config.help import comments

    told = comments(settings)
    lines = []
    for field in dataclasses.fields(settings):
        if field.name != "name":
            flag = f"  --{prefix}{field.name.replace('_', '-')} {field.default}"
            lines += textwrap.wrap(
                f"{flag:<28}  {told.get(field.name, '')}", 98, subsequent_indent=" " * 30
            )
    return "\n".join(lines)
