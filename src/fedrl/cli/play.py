"""`fedrl play`: the shop in the browser, every other text world in the terminal."""

import argparse

from fedrl.cli.parser import Parser
from fedrl.cli.text_world import NAMED, WORLD, meanings, open_world, patience, text_world
from fedrl.core.limits import one_of
from fedrl.core.types import UserError

PLAY = """\
Play a world yourself. The shop opens a page on this machine only (127.0.0.1); the household, and
text worlds of your own, are played in the terminal."""


def play(argv: list[str]) -> int:
    """A text world in the terminal, the shop in the browser."""
    from fedrl.config.flag_parsing import split_flags

    parser = Parser(
        "fedrl play",
        description=PLAY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_world_help(argv),
    )
    parser.add_argument("world", metavar="WORLD", help=NAMED)
    parser.add_argument("--task", help="the id of a task; one of the split otherwise")
    parser.add_argument("--split", help="which tasks to choose from (default: for evaluation)")
    parser.add_argument("--port", type=int, default=0, help="of the shop's page (any free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")
    asked, rest = parser.parse_known_args(argv)
    if asked.world != "webshop" and asked.port:
        raise UserError(f"--port is for the shop's page; {asked.world} is played in the terminal")
    with patience("opening the world"):
        world = open_world(asked.world, split_flags(rest))
    split = asked.split or world.splits[min(1, len(world.splits) - 1)]
    one_of("--split", split, world.splits)
    if asked.world == "household":
        from fedrl.play.terminal import play as in_terminal

        return in_terminal(world, split, asked.task)  # type: ignore[arg-type]
    if asked.world != "webshop":
        from fedrl.play.any_world import play as by_turns

        return by_turns(world, split, asked.task)
    from fedrl.play.shop_server import serve

    return serve(world, asked.port, asked.task, split, not asked.no_browser)  # type: ignore[arg-type]


def _world_help(argv: list[str]) -> str:
    """The settings of the world that is asked about, where it can be loaded."""
    if not argv or argv[0].startswith("-") or not {"-h", "--help"} & set(argv):
        return WORLD
    return f"the world:\n{meanings(text_world(argv[0]).settings, 'world.')}"
