"""The server of `fedrl watch`: a page, and what is new of the runs that it follows.

    GET  /                          the page, its style and scripts: the same for everybody
    GET  /runs                      a line about every run
    GET  /run?run=N&edition=E&rounds=R&lines=L     what run N has after so much
    GET  /clients?run=N&metric=M    by client, a metric that clients tell

All but the page needs the key that the printed address holds. Key and port are kept beside the
runs, so that an open page goes on when the server comes back.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Sequence
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.loopback import LOOPBACK
from fedrl.core.types import UserError
from fedrl.feedback.http_server import KeyedServer, Refused, Request
from fedrl.report.watch.following import Followed, find_runs

PARTS = {
    "/": "watch.html", "/watch.css": "watch.css", "/watch.js": "watch.js",
    "/charts.js": "charts.js", "/icon.svg": "icon.svg",
    "/uplot.js": "uplot/uplot.js", "/uplot.css": "uplot/uplot.css",
}  # fmt: skip
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
ADDRESS = ".watch.json"


class WatchServer(KeyedServer):
    """Follows the runs in `places`, those that begin later, too. `url` holds the key."""

    def __init__(self, places: Sequence[Path], port: int = 0) -> None:
        self.places = [place.absolute() for place in places]
        self.followed: dict[Path, Followed] = {}
        self.order: list[Path] = []
        self.reading = threading.Lock()
        self.first_edition = secrets.randbits(30)  # a page may know another server's
        if not find_runs(self.places, 1):
            told = ", ".join(map(str, places))
            raise UserError(f"there are no runs in {told}: begin one with fedrl run RECIPE")
        self.memory = folder_of(self.places[0]) / ADDRESS
        last_port, self.key = remembered(self.memory)
        try:
            super().__init__(port or last_port, self._respond)
        except UserError:
            if port:
                raise
            super().__init__(0, self._respond)  # the remembered one is taken by now
        self.url = f"http://{LOOPBACK}:{self.server_port}/#{self.key}"
        keep(self.memory, self.server_port, self.key)

    def _respond(self, request: Request) -> None:
        if request.command != "GET":
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "This page only answers GET.")
        asked = urlsplit(request.path)
        if asked.path in PARTS:
            name = PARTS[asked.path]
            text = files(__package__).joinpath(name).read_text(encoding="utf-8")
            return request.send(text, KINDS[name.rpartition(".")[2]])
        request.require(self.key)
        words = {name: values[-1] for name, values in parse_qs(asked.query).items()}
        with self.reading:
            if asked.path == "/runs":
                self._look()
                return request.send_json([self.followed[path].about() for path in self.order])
            if asked.path == "/run":
                run = self._run(words)
                return request.send_json(run.news(*(number(words, n) for n in COUNTS)))
            if asked.path == "/clients":
                run = self._run(words)
                metric = words.get("metric", "")
                lines = run.of_clients(metric) if metric else {}
                return request.send_json({"metrics": run.client_metrics(), "lines": lines})
        raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _look(self) -> None:
        """New runs are added behind those that a page knows by their numbers."""
        for path in find_runs(self.places):
            if path not in self.followed:
                self.followed[path] = Followed(path, self.first_edition)
                self.order.append(path)
        for one in self.followed.values():
            one.read()

    def _run(self, words: dict[str, str]) -> Followed:
        at = number(words, "run")
        if not 0 <= at < len(self.order):
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such run.")
        return self.followed[self.order[at]]


COUNTS = ("edition", "rounds", "lines")


def number(words: dict[str, str], name: str) -> int:
    try:
        return int(words[name])
    except (KeyError, ValueError):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{name} must be a number.") from None


def folder_of(place: Path) -> Path:
    """Where the page's address is kept: with several runs, not in one of them."""
    return place.parent if (place / "config.toml").is_file() else place


def remembered(path: Path) -> tuple[int, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return int(found["port"]), str(found["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, secrets.token_urlsafe(16)


def keep(path: Path, port: int, key: str) -> None:
    """A folder that cannot be written to is followed all the same."""
    try:
        text = json.dumps({"port": port, "key": key})
        write_atomically(path, text.encode(), mode=OWNER_ONLY)
    except OSError:
        return
