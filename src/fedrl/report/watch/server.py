"""The server of `fedrl watch`: a page, and what is new of the runs that it follows.

    GET  /                          the page, its style and scripts: the same for everybody
    GET  /runs                      a line about every run
    GET  /run?run=P&edition=E&rounds=R&lines=L     what the run in folder P has after so much
    GET  /clients?run=P&metric=M    by client, a metric that clients tell, or the first of them
    GET  /events?run=P              server-sent: rounds that have episodes, as they are played
    GET  /episodes?run=P&round=R    the episodes of a round

P is a path as `/runs` tells it: others are refused.

All but the page needs the key that the printed address holds, in a header: the page reads events
with `fetch`, because an `EventSource` sends none. Key and port are kept beside the
runs, so that an open page goes on when the server comes back.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.loopback import LOOPBACK
from fedrl.core.package_files import package_text
from fedrl.core.types import UserError
from fedrl.feedback.http_server import KeyedServer, Refused, Request
from fedrl.report.watch.episode_log import EpisodeLog
from fedrl.report.watch.following import Followed, about_all, find_runs
from fedrl.runs.logs import EPISODES

PARTS = {
    "/": "watch/watch.html", "/watch.css": "watch/watch.css", "/watch.js": "watch/watch.js",
    "/charts.js": "watch/charts.js", "/client_map.js": "watch/client_map.js",
    "/run_list.js": "watch/run_list.js", "/icon.svg": "watch/icon.svg",
    "/episodes.js": "watch/episodes.js", "/episodes.css": "episodes.css",
    "/uplot.js": "watch/uplot/uplot.js", "/uplot.css": "watch/uplot/uplot.css",
}  # fmt: skip
"""Files of `fedrl.report`; an episode looks as it does in a report."""
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
RUNS = Path("runs")
ADDRESS = ".watch.json"
EVERY = 0.5
"""Seconds between looks at a file of episodes that somebody follows."""
HEARTBEAT = 10.0
"""Seconds after which somebody who was told nothing is asked whether he is still there."""


class WatchServer(KeyedServer):
    """Follows the runs in `places`, those that begin later, too, until their folders are gone.
    `url` holds the key; `nothing_yet` says where, if there is no run so far. Of no places ./runs is
    followed, from when it is there."""

    def __init__(self, places: Sequence[Path], port: int = 0) -> None:
        for place in places:
            if not place.is_dir():
                raise UserError(f"there is no folder {place}")
        places = places or [RUNS]
        self.places = [place.absolute() for place in places]
        self.followed: dict[str, Followed] = {}
        self.episodes: dict[Path, EpisodeLog] = {}
        self.closing = threading.Event()
        self.reading = threading.Lock()
        self.nothing_yet = "" if find_runs(self.places, 1) else ", ".join(map(str, places))
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
            return request.send(package_text("fedrl.report", name), KINDS[name.rpartition(".")[2]])
        request.require(self.key)
        words = {name: values[-1] for name, values in parse_qs(asked.query).items()}
        if asked.path == "/events":
            return self._tell(request, self._episodes(words))
        with self.reading:
            if asked.path == "/runs":
                self._look()
                return request.send_json(about_all(list(self.followed.values())))
            if asked.path == "/run":
                run = self._run(words)
                return request.send_json(run.news(*(number(words, n) for n in COUNTS)))
            if asked.path == "/clients":
                run = self._run(words)
                metrics, metric = run.client_metrics(), words.get("metric", "")
                if metric not in metrics:
                    metric = metrics[0] if metrics else ""
                lines = run.of_clients(metric)
                return request.send_json({"metrics": metrics, "metric": metric, "lines": lines})
            if asked.path == "/episodes":
                log = self._episodes(words)
                log.read()
                return request.send_json(log.shown(number(words, "round")))
        raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _tell(self, request: Request, log: EpisodeLog) -> None:
        """The rounds that a run's episodes are of, and every new one, until nobody listens."""
        request.begin_events()
        edition, told, last = -1, dict[int, tuple[int, int]](), time.monotonic()
        while not self.closing.is_set():
            with self.reading:
                log.read()
                news = log.news(edition, told)
                edition, told = log.edition, log.counts()
            if news is not None or time.monotonic() - last > HEARTBEAT:
                request.send_event(news)
                last = time.monotonic()
            self.closing.wait(EVERY)

    def server_close(self) -> None:
        self.closing.set()
        super().server_close()

    def _episodes(self, words: dict[str, str]) -> EpisodeLog:
        path = self._run(words).path
        return self.episodes.setdefault(path, EpisodeLog(path / EPISODES))

    def _look(self) -> None:
        """The newest run first. One whose folder is gone is forgotten; what comes in its place is
        another edition, as it is for a page that knew another server's."""
        found = find_runs(self.places)
        known = {run.path: run for run in self.followed.values()}
        older = [path for path in known if path not in found and path.is_dir()]
        runs = [known.get(path) or Followed(path, secrets.randbits(30)) for path in found + older]
        if runs and not self.memory.exists():  # its folder was not there yet
            keep(self.memory, self.server_port, self.key)
        self.followed = {run.address: run for run in runs}
        self.episodes = {path: log for path, log in self.episodes.items() if path.is_dir()}
        for one in runs:
            one.read()

    def _run(self, words: dict[str, str]) -> Followed:
        if (run := self.followed.get(words.get("run", ""))) is None:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such run.")
        return run


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
