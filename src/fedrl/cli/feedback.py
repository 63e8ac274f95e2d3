"""The command `fedrl feedback`."""

import argparse
from functools import partial
from pathlib import Path

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

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
    asked = parser.parse_args(argv)
    if (asked.run is None) == (asked.folder is None):
        raise UserError("name a run's folder, or the private folders with --folder; one of the two")
    if asked.limit < 1:
        raise UserError(f"--limit is {asked.limit}; a sitting has at least 1 answer")
    if asked.client < 0:
        raise UserError(f"--client is {asked.client}; clients are numbered from 0")
    if not 0 <= asked.port <= 65535:
        raise UserError(
            f"--port is {asked.port}; choose one from 1 to 65535, or 0 for any free one"
        )
    from fedrl.feedback.store import Folder, client_folder

    private = asked.folder or private_folder(asked.run, asked.client)
    place = client_folder(private, asked.client)
    if asked.folder and not private.is_dir():
        raise UserError(f"--folder is {private}, which does not exist")
    if asked.folder and not place.is_dir():
        raise UserError(
            f"--client is {asked.client}, but {private} has no {place.name}: nobody asked it here"
        )
    if not private.is_dir():
        raise UserError(
            f"{private}, the algorithm.feedback_folder of {asked.run}, does not exist: a run makes "
            "it in its first round, on the machine where its clients compute"
        )
    folder = Folder(place)
    if asked.terminal:
        from fedrl.feedback.live import converse

        return converse(folder, asked.limit)
    from fedrl.feedback.page import serve

    over = partial(has_ended, asked.run) if asked.run else None
    return serve(folder, asked.client, asked.port, asked.limit, over)


def private_folder(run: Path, client: int) -> Path:
    """Where a run's clients keep what is theirs; a mistake if this client asks nobody."""
    from fedrl.config.loading import read_recipe, resolve
    from fedrl.federation.client_sampling import client_env_ids, groups
    from fedrl.runs.run_dir import require_run

    require_run(run)
    config = resolve(read_recipe(run / "config.toml"))
    if getattr(config.algorithm, "feedback", "") != "live":
        raise UserError(f'{run} asks nobody; start one with algorithm.feedback = "live"')
    holds = client_env_ids(config.federation)
    members = [one for group in groups(config.federation) for one in group]
    people = sorted({person for one in members for person in holds[one]})
    if client not in people:
        named = f"{people[0]} to {people[-1]}" if len(people) > 1 else f"only {people[0]}"
        raise UserError(f"--client is {client}; the clients of {run} are {named}")
    return Path(config.algorithm.feedback_folder)


def has_ended(run: Path) -> bool:
    """Whether nothing more will be asked, unless the run is resumed with more rounds."""
    from fedrl.runs.run_dir import RunDir

    return RunDir(run).read_meta().get("status") == "finished"
