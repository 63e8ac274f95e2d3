"""The server of `fedrl watch`: who may ask, and what is answered."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest
from support.watched_runs import Written, serving

import fedrl
from fedrl.core.types import UserError
from fedrl.feedback.http_server import KEY_HEADER
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
        for path in ("/runs", "/run?run=0&edition=0&rounds=0&lines=0", "/clients?run=0"):
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
        assert [one["seed"] for one in told] == [0, 1]  # numbers that a page knows stay
        edition = told[0]["edition"]
        path = f"/run?run=0&edition={edition}&rounds=1&lines=0"
        news = json.loads(get(server, path, server.key)[1])
        assert news["rounds"] == [1]
        assert [1, 1, "NaN"] in news["clients"]
        told = json.loads(get(server, "/clients?run=0&metric=train%2Fsuccess", server.key)[1])
        assert told["metrics"] == ["train/success"]
        assert told["lines"]["0"] == [[1], [0.2]]
        for wrong in ("run=7&edition=0&rounds=0&lines=0", "run=x", "run=-1&edition=0"):
            assert get(server, f"/run?{wrong}", server.key)[0] in (400, 404)


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


def test_nothing_to_watch_is_one_line(tmp_path: Path):
    with pytest.raises(UserError, match=r"there are no runs in .*: begin one with fedrl run"):
        fedrl.watch([tmp_path])
