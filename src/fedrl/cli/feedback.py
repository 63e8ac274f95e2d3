"""The command `fedrl feedback`."""

import argparse
from pathlib import Path

from fedrl.cli.parser import Parser

FEEDBACK = """\
Answer what one client of a run asks its person, on a page of this machine (127.0.0.1) or in the
terminal. The run needs algorithm.feedback = "live". It does not wait: a round uses what has been
answered by then."""
EPILOG = """\
Questions and answers stay in the client's private folder, which algorithm.feedback_folder holds; in
a deployment it lies on the client's own machine. docs/feedback.md says more."""


def feedback(argv: list[str]) -> int:
    """A person in the loop."""
    parser = Parser(
        "fedrl feedback",
        description=FEEDBACK,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="the run's folder")
    parser.add_argument("--client", type=int, required=True, metavar="N", help="whose person")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="instead of RUN: where the private folders are"
    )
    parser.add_argument("--port", type=int, default=0, help="of the page (0: any free one)")
    parser.add_argument(
        "--limit", type=int, default=50, metavar="N", help="answers in one sitting (50)"
    )
    parser.add_argument("--terminal", action="store_true", help="answer here, without a page")
    args = parser.parse_args(argv)
    from fedrl import api

    return api.answer_queries(
        args.run,
        client=args.client,
        folder=args.folder,
        port=args.port,
        limit=args.limit,
        terminal=args.terminal,
    )
