"""`fedrl.answer_queries`: a person in the loop of a FedRLHF run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedrl.config.loading import read_recipe, resolve
from fedrl.core.types import UserError
from fedrl.federation.client_sampling import client_env_ids, groups
from fedrl.runs.run_dir import RunDir, require_run


def answer_queries(
    run: str | Path | None = None,
    *,
    client: int,
    folder: str | Path | None = None,
    port: int = 0,
    limit: int = 50,
    terminal: bool = False,
    people: Sequence[str] = (),
    new_links: bool = False,
    host: str = "",
    certificate: str | Path | None = None,
    private_key: str | Path | None = None,
    plain_http: bool = False,
) -> int:
    """Answer what one client of a run asks its person, until you stop; the exit code.

    On a page of this machine, or in the terminal. `folder`, instead of a run, is where the private
    folders of clients are. With `people` each of them has a link, on `host` if that is named
    (see `feedback.network`); `new_links` makes the old ones void.
    """
    if (run is None) == (folder is None):
        raise UserError("name a run's folder, or the private folders with --folder; one of the two")
    if limit < 1:
        raise UserError(f"--limit is {limit}; a sitting has at least 1 answer")
    if client < 0:
        raise UserError(f"--client is {client}; clients are numbered from 0")
    if not 0 <= port <= 65535:
        raise UserError(f"--port is {port}; choose one from 1 to 65535, or 0 for any free one")
    from fedrl.feedback.network import listening
    from fedrl.feedback.store import Folder, client_folder

    if len({name.casefold() for name in people}) < len(people):  # some disks tell no case, too
        raise UserError(f"--people is {','.join(people)}, which names somebody twice")
    if terminal and (people or host):
        raise UserError("--terminal is for one person at this machine: leave out --people, --host")
    at = listening(host, people, _path(certificate), _path(private_key), plain_http)
    if folder is not None:
        private = Path(folder)
        place = client_folder(private, client)
        if not private.is_dir():
            raise UserError(f"--folder is {private}, which does not exist")
        if not place.is_dir():
            raise UserError(
                f"--client is {client}, but {private} has no {place.name}: nobody asked it here"
            )
        over = None
    else:
        path = Path(run or "")
        private = private_folder(path, client)
        place, over = client_folder(private, client), partial(has_ended, path)
    if not private.is_dir():
        raise UserError(
            f"{private}, the algorithm.feedback_folder of {run}, does not exist: a run makes "
            "it in its first round, on the machine where its clients compute"
        )
    _require_whole_names(people, place)
    if terminal:
        from fedrl.feedback.terminal import converse

        return converse(Folder(place), limit)
    from fedrl.feedback.page import serve

    return serve(Folder(place), client, port, limit, over, people, at, new_links)


def _require_whole_names(people: Sequence[str], place: Path) -> None:
    """A space is most likely a forgotten comma; who has answered by such a name goes on."""
    from fedrl.feedback.store import PEOPLE, Folder

    for name in people:
        known = (place / PEOPLE / name).is_dir()
        if len(name.split()) > 1 and not (known and Folder(place).of(name).view().log.closed):
            apart, joined = ",".join(name.split()), "-".join(name.split())
            raise UserError(
                f"--people names {name!r}, with a space: write {apart} if these are several "
                f"people, and {joined} if this is one"
            )


def _path(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name)


def private_folder(run: Path, client: int) -> Path:
    """Where a run's clients keep what is theirs; a mistake if this client asks nobody."""
    from fedrl.algorithms.fedrlhf.ratings.settings import Settings as RatingsSettings
    from fedrl.algorithms.fedrlhf.text.settings import Settings as TextSettings

    require_run(run)
    config = resolve(read_recipe(run / "config.toml"))
    settings = config.algorithm
    asks = isinstance(settings, RatingsSettings | TextSettings) and settings.feedback == "live"
    if not asks:
        raise UserError(f'{run} asks nobody; start one with algorithm.feedback = "live"')
    owners = client_env_ids(config.federation)
    people = sorted({o for group in groups(config.federation) for c in group for o in owners[c]})
    if client not in people:
        named = f"{people[0]} to {people[-1]}" if len(people) > 1 else f"only {people[0]}"
        raise UserError(f"--client is {client}; the clients of {run} are {named}")
    return Path(settings.feedback_folder)


def has_ended(run: Path) -> bool:
    """Whether nothing more will be asked, unless the run is resumed with more rounds."""
    return RunDir(run).read_meta().get("status") == "finished"


def questions_waiting(run: str | Path) -> str:
    """Of a run that asks people: what waits for them and what was learned from, in a line.

    Empty where it asks nobody, or elsewhere: a node's people have their folder there.
    """
    path = Path(run)
    require_run(path)
    config = resolve(read_recipe(path / "config.toml"))
    if getattr(config.algorithm, "feedback", "") != "live" or config.engine == "flower":
        return ""
    from fedrl.feedback.waiting import waiting_line

    private = Path(getattr(config.algorithm, "feedback_folder", ""))
    return waiting_line(path, private, range(config.federation.clients))
