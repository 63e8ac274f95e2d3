"""The page of `fedrl feedback`: one client's queries, one at a time, for the person at it.

    GET  /client-0003/           the page, its style and scripts: the same for everybody
    GET  /client-0003/state      questions that wait, the last answers, how far the person is
    POST /client-0003/entries    answers, changes, deletions, skips, undos and "go on", in their
                                 order; the state after, and what was not written because the
                                 person has done something else elsewhere
    GET  /client-0003/history    all answers that stand
    GET  /client-0003/effect     what they changed
    GET  /client-0003/export     the answers as a file, ?as=csv or json
    POST /client-0003/forget     delete all of them
    GET  /client-0003/overview   of all people, for whoever runs it

Anywhere else a browser finds a page that says so. All but the pages needs a key. A header names the
question on the screen, which stays among those that wait. The address ends
in `#KEY`, which browsers do not send by themselves; keys and port are kept in the client's folder,
so that an open page goes on when the server comes back. Where several people answer, each has a
key, and the overview has one of its own.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from importlib.resources import files
from itertools import groupby
from urllib.parse import unquote

from fedrl.core.loopback import HERE, Listen
from fedrl.core.types import UserError
from fedrl.feedback import effect, export, page_state
from fedrl.feedback.answer_log import Entry, FolderView, Progress
from fedrl.feedback.entries import Conflict
from fedrl.feedback.http_server import Json, KeyedServer, Refused, Request
from fedrl.feedback.links import (
    Address,
    AlreadyServed,
    Serving,
    last_address,
    new_key,
    save_address,
)
from fedrl.feedback.overview import overview
from fedrl.feedback.store import Folder

PARTS = {
    "": "page.html", "page.css": "page.css", "page.js": "page.js", "icon.svg": "icon.svg",
    "applying.js": "applying.js", "asking.js": "asking.js", "changed.js": "changed.js",
    "drawing.js": "drawing.js", "films.js": "films.js", "history.js": "history.js",
    "keeping.js": "keeping.js", "presses.js": "presses.js", "sitting.js": "sitting.js",
    "telling.js": "telling.js", "people": "overview.html", "overview.js": "overview.js",
}  # fmt: skip
LOST, LOST_PARTS = "lost.html", ("page.css", "icon.svg")
"""Where there is nothing; it may be asked for at any depth, so its parts lie at the top."""
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
SEEN_HEADER = "X-Fedrl-Seen"
Over = Callable[[], bool]


class FeedbackServer(KeyedServer):
    """One client's page. `url` holds a key: whoever has it can read and answer.

    With `people` everybody has a link of their own (`links`), and `url` is the overview.
    """

    def __init__(
        self,
        folder: Folder,
        client: int,
        port: int,
        limit: int,
        over: Over | None,
        people: Sequence[str] = (),
        at: Listen = HERE,
        new_links: bool = False,
    ) -> None:
        self.folder, self.client, self.limit, self.over = folder, client, limit, over
        last = last_address(folder)
        self.people = {name: folder.of(name) for name in people}
        # New links are of those who are left out now, too: they may be named again.
        known = {
            name: last_address(folder.of(name)) for name in (folder.people if new_links else people)
        }
        keys = {name: new_key() if new_links else one.key for name, one in known.items()}
        alone, overview = last.key, last.overview or new_key()
        if new_links:
            alone, overview = new_key(), new_key()
        self.places = {"": last.place} | {name: one.place for name, one in known.items()}
        self.serving = Serving(folder, client)
        super().__init__(port or last.port, self._respond, at)
        self.moved = last.site if last.site != self.site else ""
        for name, key in keys.items():
            mine = Address(self.server_port, key, self.site, place=self.places[name])
            save_address(folder.of(name), mine)
        mine = Address(
            self.server_port, alone, self.site, tuple(people), overview, self.places[""]
        )  # fmt: skip
        save_address(folder, mine)
        self.root = f"/{folder.path.name}/"
        self.key = overview if people else alone
        keys = {name: keys[name] for name in people}
        self.keys = {self.key: ""} | {key: name for name, key in keys.items()}
        place = f"{self.site}{self.root}"
        self.url = f"{place}people#{self.key}" if people else f"{place}#{self.key}"
        self.links = {name: f"{place}#{key}" for name, key in keys.items()}
        self.serving.tell(self.links | {"overview" if people else "page": self.url})
        self.page, self.trouble = _digest(), ""
        for one in self.people.values() or (folder,):
            one.sit(limit)

    def server_close(self) -> None:
        """Called by the base class, too, where it could not listen."""
        super().server_close()
        self.serving.end()

    def told(self, error: UserError) -> str:
        """Paths and what is wrong with them are for whoever runs it, once in the terminal."""
        if str(error) != self.trouble:
            self.trouble = str(error)
            print(f"people cannot be served: {self.trouble}", file=sys.stderr, flush=True)
        return "The computer that keeps your answers cannot read or write them just now."

    def _respond(self, request: Request) -> None:
        path, _, words = request.path.partition("?")
        name = path.removeprefix(self.root)
        if request.command == "GET" and path in (f"/{part}" for part in LOST_PARTS):
            name = path.removeprefix("/")
        elif request.command == "GET" and (name == path or name not in PARTS) and _browsed(request):
            request.send(_text(LOST), "text/html", HTTPStatus.NOT_FOUND)
            return
        elif name == path:
            raise _nothing()  # other clients are not here
        if request.command == "GET" and name in PARTS:
            file = PARTS[name]
            request.send(_text(file), KINDS[file.rpartition(".")[2]])
            return
        person = request.require_one(self.keys)
        if self.people and not person:
            self._respond_overview(request, name)
        elif request.command == "GET":
            self._respond_get(request, self.people.get(person, self.folder), name, words)
        else:
            self._respond_post(request, self.people.get(person, self.folder), name)

    def _respond_get(self, request: Request, folder: Folder, name: str, words: str) -> None:
        view = folder.view()
        if name == "state":
            request.send_json(self._state(folder, view, _seen(request)))
        elif name == "history":
            request.send_json(page_state.history(view))
        elif name == "effect":
            deleted = effect.taken_away(folder) or _all_deleted(view)
            request.send_json(page_state.effect(effect.read(folder), folder.person, deleted))
        elif (name, words) == ("export", "as=csv"):
            request.send(export.as_csv(view), "text/csv")
        elif (name, words) == ("export", "as=json"):
            request.send(export.as_json(view), "application/json")
        else:
            raise _nothing()

    def _respond_post(self, request: Request, folder: Folder, name: str) -> None:
        if name == "entries":
            view, conflicts = self._give(folder, page_state.parse_entries(request.body()))
            told = {"conflicts": page_state.conflicts(view, conflicts)}
            request.send_json(self._state(folder, view, _seen(request)) | told)
        elif name == "forget":
            if request.body() != {"all": True}:
                raise page_state.unreadable()
            request.send_json(self._state(folder, folder.forget_all()))
        else:
            raise _nothing()

    def _respond_overview(self, request: Request, name: str) -> None:
        if (request.command, name) != ("GET", "overview"):
            raise Refused(HTTPStatus.FORBIDDEN, "This address is for the overview only.")
        views = {person: folder.view() for person, folder in self.people.items()}
        request.send_json({"client": self.client, **overview(views, self._no_longer_asked())})

    def _no_longer_asked(self) -> dict[str, int]:
        """Who is not served, with the answers that still count."""
        served = set(self.people) or {""}
        left_out = [
            self.folder.of(name) for name in ["", *self.folder.people] if name not in served
        ]
        counts = {one.person: one.progress().answered for one in left_out}
        return {name: count for name, count in counts.items() if count}

    def _state(self, folder: Folder, view: FolderView, seen: str = "") -> dict[str, Json]:
        over = self.over is not None and self.over()
        about: dict[str, Json] = {
            "client": self.client, "limit": self.limit, "over": over, "person": folder.person,
            "page": self.page, "others": max(len(self.people) - 1, 0),
            "place": self.places[folder.person], "no_longer": len(self._no_longer_asked()),
            **_learned(folder, view),
        }  # fmt: skip
        return about | page_state.state(view, seen)

    def _give(
        self, folder: Folder, entries: Sequence[Entry | None]
    ) -> tuple[FolderView, list[Conflict]]:
        """Entries in their order, those between two "go on" in one write."""
        view, conflicts = None, list[Conflict]()
        for go_on, some in groupby(entries, key=lambda entry: entry is None):
            if go_on:
                view = folder.sit(self.limit)
            else:
                view, found = folder.take(entry for entry in some if entry is not None)
                conflicts += found
        return view or folder.view(), conflicts


def open_page(
    folder: Folder,
    client: int,
    port: int = 0,
    limit: int = 50,
    over: Over | None = None,
    people: Sequence[str] = (),
    at: Listen = HERE,
    new_links: bool = False,
) -> FeedbackServer:
    """The server, listening but not yet answering. Port 0: the one of last time, or a free one.

    `over` says whether the run has ended. Where links that were printed before open nothing now,
    because another program has the port, say, `moved` is how they began.
    """
    try:
        return FeedbackServer(folder, client, port, limit, over, people, at, new_links)
    except AlreadyServed:
        raise
    except UserError:
        if port or not last_address(folder).port:
            raise
        save_address(folder, last_address(folder)._replace(port=0))  # the port has a new owner
        return FeedbackServer(folder, client, port, limit, over, people, at, new_links)


def serve(
    folder: Folder,
    client: int,
    port: int,
    limit: int,
    over: Over | None = None,
    people: Sequence[str] = (),
    at: Listen = HERE,
    new_links: bool = False,
) -> int:
    """Serve until Ctrl-C; the exit code."""
    with open_page(folder, client, port, limit, over, people, at, new_links) as server:
        try:
            if server.moved:
                print(f"links that began with {server.moved} no longer work: send these instead")
            if people:
                for name, link in server.links.items():
                    print(f"{name} answers at {link}")
                print(f"overview at {server.url} (Ctrl-C closes it)", flush=True)
            else:
                print(f"client {client} answers at {server.url} (Ctrl-C closes it)", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print(f"\nclosed; {_kept(folder)} in {folder.path}")
    return 0


def _all_deleted(view: FolderView) -> bool:
    """Whether nothing stands because it was deleted: also after a round without it."""
    return bool(view.log.forgotten) and not view.progress.answered


def _kept(folder: Folder) -> str:
    """How much all have said, in words."""
    unsure = sum(folder.of(name).progress().unsure for name in ["", *folder.people])
    return Progress(len(folder.answers()), 0, 0, unsure).kept


def _learned(folder: Folder, view: FolderView) -> dict[str, Json]:
    """What was learned of a person, as far as it can be read: answering goes on without it, and
    what is wrong with the file is told where it is shown. The model still `knows` of a person from
    whom an answer was deleted just now, and something `remains` where all were."""
    try:
        learned = page_state.learned(effect.read(folder), folder.person)
        remains = _all_deleted(view) and effect.remains(folder)
        knows = bool(learned) or effect.taken_away(folder)
        return {"learned": learned, "knows": knows, "remains": remains}
    except UserError:
        return {"learned": None, "knows": False, "remains": False}


def _seen(request: Request) -> str:
    """The question that the person looks at; "" if there is none."""
    return unquote(request.headers.get(SEEN_HEADER, ""))


def _browsed(request: Request) -> bool:
    """Whether somebody has typed or followed this address, and no script has asked for it."""
    return "text/html" in request.headers.get("Accept", "")


def _text(file: str) -> str:
    return files(__package__).joinpath(file).read_text(encoding="utf-8")


def _digest() -> str:
    """Of the page's parts: an open page of another version says so."""
    return hashlib.sha256("".join(map(_text, PARTS.values())).encode()).hexdigest()[:16]


def _nothing() -> Refused:
    return Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
