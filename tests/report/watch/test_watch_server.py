"""The server of `fedrl watch`: who may ask, and what is answered."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from support.watched_runs import Written, an_episode, serving

import fedrl
from fedrl.cli import call
from fedrl.core.types import UserError
from fedrl.feedback.http_server import KEY_HEADER
from fedrl.report.watch import server as server_module
from fedrl.report.watch.server import PARTS, WatchServer


def get(server: WatchServer, path: str, key: str | None = None, method: str = "GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    headers = {} if key is None else {KEY_HEADER: key}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer.headers


def test_numbers_need_the_key_and_the_page_does_not(tmp_path: Path):
    Written(tmp_path / "runs" / "a")
    with serving(tmp_path / "runs") as server:
        for part in PARTS:
            status, body, headers = get(server, part)
            assert status == 200
            assert body
            assert "default-src 'none'" in headers["Content-Security-Policy"]
        private = ("/runs", "/run?run=a&edition=0&rounds=0&lines=0", "/clients?run=a")
        for path in (*private, "/events?run=a", "/episodes?run=a&round=0"):
            assert get(server, path)[0] == 403
            assert get(server, path, "wrong")[0] == 403
        assert get(server, "/runs", server.key)[0] == 200
        assert get(server, "/runs", server.key, "POST")[0] == 405
        assert get(server, "/../../etc/passwd", server.key)[0] == 404


def test_a_page_follows_runs_and_those_that_begin_later(tmp_path: Path):
    first = Written(tmp_path / "runs" / "a")
    with serving(tmp_path / "runs") as server:
        (about,) = json.loads(get(server, "/runs", server.key)[1])
        assert about["path"] == str(tmp_path / "runs" / "a")
        first.round(failed=1)
        Written(tmp_path / "runs" / "b", seed=1)
        told = json.loads(get(server, "/runs", server.key)[1])
        assert sorted(one["seed"] for one in told) == [0, 1]
        run, edition = quote(about["path"]), about["edition"]
        path = f"/run?run={run}&edition={edition}&rounds=1&lines=0"
        news = json.loads(get(server, path, server.key)[1])
        assert news["rounds"] == [1]
        assert [1, 1, "NaN"] in news["clients"]
        told = json.loads(get(server, f"/clients?run={run}&metric=train%2Fsuccess", server.key)[1])
        assert told["metrics"] == ["train/success"]
        assert told["lines"]["0"] == [[1], [0.2]]
        first = get(server, f"/clients?run={run}&metric=nothing", server.key)[1]
        assert json.loads(first) == told  # what there is not is the first that there is
        for wrong in ("run=7&edition=0&rounds=0&lines=0", "edition=0", f"run={run}&edition=x"):
            assert get(server, f"/run?{wrong}", server.key)[0] in (400, 404)


def test_a_deleted_run_is_forgotten_and_another_in_its_folder_is_another(tmp_path: Path):
    run = Written(tmp_path / "runs" / "a")
    run.round()
    Written(tmp_path / "runs" / "b", seed=1)
    with serving(tmp_path / "runs") as server:
        told = {one["seed"]: one for one in json.loads(get(server, "/runs", server.key)[1])}
        path = f"/run?run={quote(told[0]['path'])}&edition={told[0]['edition']}&rounds=2&lines=5"
        assert json.loads(get(server, path, server.key)[1])["rounds"] == []
        shutil.rmtree(run.path)
        (left,) = json.loads(get(server, "/runs", server.key)[1])
        assert left["seed"] == 1
        assert get(server, path, server.key)[0] == 404
        Written(tmp_path / "runs" / "a")
        assert len(json.loads(get(server, "/runs", server.key)[1])) == 2
        news = json.loads(get(server, path, server.key)[1])
        assert (news["since"], news["rounds"]) == (0, [0])


def test_the_newest_run_is_the_first(tmp_path: Path):
    for at, name in enumerate("abc"):
        run = Written(tmp_path / "runs" / name, seed=at)
        os.utime(run.path / "config.toml", (at, at))
        if name == "a":
            server = WatchServer([tmp_path / "runs"])
            server._look()
    server._look()
    server.server_close()
    assert [run.path.name for run in server.followed.values()] == ["c", "b", "a"]


def events(answer: http.client.HTTPResponse) -> Iterator[dict]:
    """What is told over a stream, as it comes."""
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def test_episodes_are_told_as_they_are_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "EVERY", 0.01)
    run = Written(tmp_path / "runs" / "a")
    run.episodes(True, False)
    with serving(tmp_path / "runs") as server:
        get(server, "/runs", server.key)
        path = quote(str(run.path))
        for wrong in ("/events?run=9", "/events", f"/episodes?run={path}&round=x", "/episodes"):
            assert get(server, wrong, server.key)[0] in (400, 404)
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.request(
            "GET", f"/events?run={quote(str(run.path))}", headers={KEY_HEADER: server.key}
        )
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        told = events(answer)
        assert next(told) == {"anew": True, "rounds": [[0, 1, 2]]}
        run.round()
        half = json.dumps(an_episode(1, "late", True))
        with (run.path / "episodes.jsonl").open("a") as log:
            log.write(half[:40])
            log.flush()
            shown = json.loads(get(server, f"/episodes?run={path}&round=1", server.key)[1])
            assert shown == []
            log.write(half[40:] + "\n")
        assert next(told) == {"anew": False, "rounds": [[1, 1, 1]]}
        (shown,) = json.loads(get(server, f"/episodes?run={path}&round=1", server.key)[1])
        assert shown["task"] == "late"
        assert shown["html"].startswith("<details class=episode>")
        (run.path / "episodes.jsonl").write_text("")  # the run goes back to its start
        assert next(told) == {"anew": True, "rounds": []}
    assert next(told, None) is None  # a server that closes ends what it tells
    connection.close()


def test_who_hangs_up_is_noticed_though_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "EVERY", 0.01)
    monkeypatch.setattr(server_module, "HEARTBEAT", 0.01)
    run = Written(tmp_path / "runs" / "a")
    ended = threading.Event()
    tell = WatchServer._tell

    def noted(self, *words):
        try:
            tell(self, *words)
        finally:
            ended.set()

    monkeypatch.setattr(WatchServer, "_tell", noted)
    with serving(tmp_path / "runs") as server:
        get(server, "/runs", server.key)
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.request(
            "GET", f"/events?run={quote(str(run.path))}", headers={KEY_HEADER: server.key}
        )
        answer = connection.getresponse()
        assert answer.readline()
        answer.close()
        connection.close()
        assert ended.wait(20)


def test_an_open_page_goes_on_when_the_server_comes_back(tmp_path: Path):
    Written(tmp_path / "runs" / "a")
    with serving(tmp_path / "runs") as server:
        before = server.url
    memory = tmp_path / "runs" / ".watch.json"
    assert memory.stat().st_mode & 0o077 == 0
    with serving(tmp_path / "runs") as server:
        assert server.url == before
        with serving(tmp_path / "runs") as other:  # its port is taken: another, the same key
            assert other.server_port != server.server_port
    memory.write_text("no JSON")
    with serving(tmp_path / "runs") as server:
        assert server.url != before


def test_a_run_alone_keeps_its_folder_as_it_is(tmp_path: Path):
    Written(tmp_path / "runs" / "a")
    before = sorted(path.name for path in (tmp_path / "runs" / "a").iterdir())
    with serving(tmp_path / "runs" / "a") as server:
        assert json.loads(get(server, "/runs", server.key)[1])
    assert sorted(path.name for path in (tmp_path / "runs" / "a").iterdir()) == before


def test_before_the_first_run_the_page_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(WatchServer, "serve_forever", lambda _: None)
        assert call(["watch", "--no-browser"]) == 0
    assert "there are no runs in runs yet" in capsys.readouterr().out
    with serving() as server:
        assert json.loads(get(server, "/runs", server.key)[1]) == []
        Written(tmp_path / "runs" / "a")
        assert len(json.loads(get(server, "/runs", server.key)[1])) == 1
        before = server.url
    (tmp_path / "empty").mkdir()
    with serving() as server, serving(tmp_path / "empty") as other:
        assert server.url == before
        assert server.nothing_yet == ""
        assert other.nothing_yet == str(tmp_path / "empty")


def test_a_named_place_that_is_not_there_is_one_line(tmp_path: Path):
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        fedrl.watch([tmp_path / "nowhere"])
