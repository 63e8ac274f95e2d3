"""`fedrl play`: the shop in the browser, every other text world in the terminal."""

from fedrl.cli.parser import Parser
from fedrl.cli.text_world import NAMED, WORLD, meanings, patience

PLAY = """\
Play a world yourself. The shop opens a page on this machine only (127.0.0.1); the household, and
text worlds of your own, are played in the terminal."""


def play(argv: list[str]) -> int:
    """A text world in the terminal, the shop in the browser."""
    parser = Parser(
        "fedrl play",
        description=PLAY,
        epilog=_world_help(argv),
    )
    parser.add_argument("world", metavar="WORLD", help=NAMED)
    parser.add_argument("--task", help="the id of a task; one of the split otherwise")
    parser.add_argument("--split", help="which tasks to choose from (default: for evaluation)")
    parser.add_argument("--port", type=int, default=0, help="of the shop's page (any free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")
    asked, rest = parser.parse_known_args(argv)
    from fedrl import api

    with patience("opening the world"):
        world = api.open_world(asked.world, rest)
    return api.play_world(
        world, task=asked.task, split=asked.split, port=asked.port, browser=not asked.no_browser
    )


def _world_help(argv: list[str]) -> str:
    """The settings of the world that is asked about, where it can be loaded."""
    from fedrl.api.text_worlds import text_world

    if not argv or argv[0].startswith("-") or not {"-h", "--help"} & set(argv):
        return WORLD
    return f"the world:\n{meanings(text_world(argv[0]).settings, 'world.')}"
