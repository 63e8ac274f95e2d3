"""The command `fedrl feedback`."""

from pathlib import Path

from fedrl.cli.parser import Parser

FEEDBACK = """\
Answer what one client of a run asks its person, on a page of this machine (127.0.0.1) or in the
terminal. The run needs algorithm.feedback = "live". It does not wait: a round uses what has been
answered by then.

Several people may answer for one client: --people gives each a link of their own, and you an
overview. Other machines reach the page only with --host, and then over TLS."""
EPILOG = """\
Questions and answers stay in the client's private folder, which algorithm.feedback_folder holds; in
a deployment it lies on the client's own machine. docs/feedback.md says more."""


def feedback(argv: list[str]) -> int:
    """A person in the loop."""
    parser = Parser(
        "fedrl feedback",
        description=FEEDBACK,
        epilog=EPILOG,
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
    several = parser.add_argument_group("several people")
    several.add_argument(
        "--people",
        type=_names,
        default=(),
        metavar="A,B",
        help="who answers, each by a link; no spaces",
    )
    several.add_argument(
        "--new-links", action="store_true", help="links that were printed before open nothing"
    )
    several.add_argument(
        "--host",
        default="",
        metavar="NAME",
        help="reach it at this name of this machine",
    )
    several.add_argument("--certificate", type=Path, metavar="PEM", help="TLS, with --private-key")
    several.add_argument("--private-key", type=Path, metavar="PEM", help="the certificate's key")
    several.add_argument(
        "--plain-http", action="store_true", help="--host without TLS: anyone on the way can read"
    )
    args = parser.parse_args(argv)
    from fedrl import api

    return api.answer_queries(
        args.run,
        client=args.client,
        folder=args.folder,
        port=args.port,
        limit=args.limit,
        terminal=args.terminal,
        people=args.people,
        new_links=args.new_links,
        host=args.host,
        certificate=args.certificate,
        private_key=args.private_key,
        plain_http=args.plain_http,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
