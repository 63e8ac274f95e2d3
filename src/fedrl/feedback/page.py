"""The page of `fedrl feedback`: one client's questions, one at a time, for the person at it.

    GET  /client-0003/          the page, page.css, page.js, icon.svg: the same for everybody
    GET  /client-0003/state     questions that wait, the last answers, how far the person is
    POST /client-0003/entries   answers, skips, undos and "go on", in their order; the state after

The last two need the key. The address ends in `#KEY`, which browsers do not send by themselves; key
and port are kept in the client's folder, so that an open page goes on when the server comes back.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from http import HTTPStatus
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple

from fedrl.core.loopback import LOOPBACK
from fedrl.core.types import UserError
from fedrl.feedback.records import Question
from fedrl.feedback.server import KeyedServer, Refused, Request
from fedrl.feedback.store import Folder
from fedrl.feedback.transcript import Given, View

AHEAD = 40
"""Questions that the page holds ready: a quick person never waits for the server."""
BEHIND = 30
"""Entries that the page knows: as many can be undone in one go."""
MOST_ENTRIES = 200
PARTS = {"": "page.html", "page.css": "page.css", "page.js": "page.js", "icon.svg": "icon.svg"}
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
ADDRESS = "page.json"
Over = Callable[[], bool]


class Address(NamedTuple):
    port: int
    key: str


class FeedbackServer(KeyedServer):
    """One client's page. `url` holds the key: whoever has it can read and answer."""

    def __init__(
        self, folder: Folder, client: int, port: int, limit: int, over: Over | None
    ) -> None:
        self.folder, self.client, self.limit, self.over = folder, client, limit, over
        before = _remembered(folder)
        super().__init__(port or before.port, self._respond)
        self.key = before.key
        self.root = f"/{folder.path.name}/"
        self.url = f"http://{LOOPBACK}:{self.server_port}{self.root}#{self.key}"
        _remember(folder, Address(self.server_port, self.key))
        folder.sit(limit)

    def _respond(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        name = path.removeprefix(self.root)
        if name == path:
            raise _nothing()  # other clients are not here
        if request.command == "GET" and name in PARTS:
            file = PARTS[name]
            text = files(__package__).joinpath(file).read_text(encoding="utf-8")
            request.send(text, KINDS[file.rpartition(".")[2]])
            return
        request.require(self.key)
        if (request.command, name) == ("GET", "state"):
            view = self.folder.view()
        elif (request.command, name) == ("POST", "entries"):
            view = self._take(_entries(request.body()))
        else:
            raise _nothing()
        over = self.over is not None and self.over()
        about = {"client": self.client, "limit": self.limit, "over": over}
        request.send_json(about | state(view))

    def _take(self, entries: Sequence[Given | None]) -> View:
        """Entries in their order, those between two "go on" in one write."""
        view = None
        for go_on, some in groupby(entries, key=lambda entry: entry is None):
            if go_on:
                view = self.folder.sit(self.limit)
            else:
                view = self.folder.give(entry for entry in some if entry is not None)
        return view or self.folder.view()


def open_page(
    folder: Folder, client: int, port: int = 0, limit: int = 50, over: Over | None = None
) -> FeedbackServer:
    """The server, listening but not yet answering. Port 0: the one of last time, or a free one.

    `over` says whether the run has ended.
    """
    try:
        return FeedbackServer(folder, client, port, limit, over)
    except UserError:
        if port or not _remembered(folder).port:
            raise
        _remember(folder, _remembered(folder)._replace(port=0))  # the port has a new owner
        return FeedbackServer(folder, client, port, limit, over)


def serve(folder: Folder, client: int, port: int, limit: int, over: Over | None = None) -> int:
    """Serve until Ctrl-C; the exit code."""
    with open_page(folder, client, port, limit, over) as server:
        try:
            print(f"client {client} answers at {server.url} (Ctrl-C closes it)", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            count = folder.progress().answered
            print(f"\nclosed; {count} answer{'s' * (count != 1)} kept in {folder.path}")
    return 0


def state(view: View) -> dict[str, Any]:
    """What the page is told of the folder."""
    return {
        "progress": view.progress._asdict(),
        "questions": [_shown(one) for one in view.pending[:AHEAD]],
        "recent": [
            _shown(one) | {"value": said.value, "skip": said.skip}
            for one, said in view.recent(BEHIND)
        ],
    }


def _shown(question: Question) -> dict[str, Any]:
    """Without the keys: they say nothing to a person."""
    return {
        "id": question.id,
        "kind": question.kind,
        "items": question.items,
        "scores": question.scores,
    }


def _entries(body: Any) -> list[Given | None]:
    """The page's entries; None is "go on"."""
    match body:
        case {"entries": [*entries]} if len(entries) <= MOST_ENTRIES:
            return [_entry(entry) for entry in entries]
    raise _unreadable()


def _entry(entry: Any) -> Given | None:
    match entry:
        case {"more": True}:
            return None
        case {"undo": str(question), "once": str(once)} if question and once:
            return Given(question, None, once, "undo")
        case {"skip": str(question), "once": str(once)} if once:
            return Given(question, None, once, "skip")
        case {"question": str(question), "value": None, "once": str(once)} if once:
            return Given(question, None, once)
        case {"question": str(question), "value": -1 | 0 | 1 as value, "once": str(once)} if once:
            return Given(question, float(value), once)
    raise _unreadable()


def _nothing() -> Refused:
    return Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")


def _unreadable() -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "The request could not be read.")


def _remembered(folder: Folder) -> Address:
    """Where the page was last time; a new key where it never was."""
    try:
        found = json.loads((folder.path / ADDRESS).read_text(encoding="utf-8"))
        return Address(int(found["port"]), str(found["key"]))
    except FileNotFoundError:
        return Address(0, secrets.token_urlsafe(16))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder.path / ADDRESS} is damaged; remove it to get a new one"
        ) from error


def _remember(folder: Folder, address: Address) -> None:
    folder.replace(ADDRESS, json.dumps(address._asdict()).encode())
