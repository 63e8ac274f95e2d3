"""`fedrl watch`: a page on loopback that follows runs while they are written."""

import sys
from pathlib import Path

from fedrl.cli.parser import Parser

WATCH = (
    "Open a page that follows runs while they train: curves, clients, failures, bytes, time left. "
    "It reads what runs write and changes nothing; runs that begin later appear by themselves."
)


def watch(argv: list[str]) -> int:
    """Serve the page until Ctrl-C."""
    parser = Parser("fedrl watch", description=WATCH)
    parser.add_argument(
        "places", nargs="*", type=Path, metavar="RUN",
        help="runs, or folders with runs in them (runs)",
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=0, help="that of last time, or any free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    asked = parser.parse_args(argv)
    from fedrl import api

    with api.watch(asked.places, port=asked.port) as server:
        if server.nothing_yet:
            print(f"there are no runs in {server.nothing_yet} yet: they appear when they begin")
        print(f"watching at {server.url}  (Ctrl-C ends it)", flush=True)
        if not asked.no_browser and sys.stdout.isatty():
            import webbrowser

            webbrowser.open(server.url)
        server.serve_forever()
    return 0
