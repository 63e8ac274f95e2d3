"""The feedback page: the manners of its server, its command, and what a run does with answers."""

from __future__ import annotations

import errno
import http.client
import json
import os
import signal
import socket
import subprocess
from urllib.parse import urlsplit

import pytest
from support.children import python
from support.feedback_pages import rate, request, running

from fedrl.api.people import private_folder
from fedrl.cli import call
from fedrl.core.loopback import Listen
from fedrl.core.types import UserError
from fedrl.feedback import page, store
from fedrl.feedback.page import open_page
from fedrl.feedback.queries import Answer
from fedrl.feedback.store import Folder, client_folder

# The server ---------------------------------------------------------------------------------------


def entries(*some):
    return {"entries": [dict(entry, once=f"once-{n}") for n, entry in enumerate(some)]}


def test_state_and_entries_need_the_key_and_the_page_holds_nothing_private(folder):
    folder.ask([rate("a", "a secret item")])
    with running(folder) as server:
        for name in ("", "page.js", "page.css", "icon.svg"):
            status, text = request(server, "GET", server.root + name, key=None)
            assert status == 200
            assert "secret" not in str(text)
            assert server.key not in str(text)
        for key in (None, "", "x" * 22, server.key + "x"):
            status, said = request(server, "GET", server.root + "state", key=key)
            assert (status, "secret" in str(said)) == (403, False)
            answer = entries({"question": "a", "value": 1})
            assert request(server, "POST", server.root + "entries", answer, key=key)[0] == 403
        assert folder.answers() == []
        assert request(server, "GET", server.root + "state")[1]["questions"][0]["items"] == [
            "a secret item"
        ]


def test_the_keys_of_items_are_not_shown(folder):
    folder.ask([rate("a")])
    with running(folder) as server:
        assert "key-a" not in str(request(server, "GET", server.root + "state")[1])


def test_another_clients_path_and_key_are_refused(tmp_path):
    folders = [Folder(client_folder(tmp_path, client)) for client in (3, 4)]
    folders[1].ask([rate("a", "only four's")])
    with running(folders[0], 3) as three, running(folders[1], 4) as four:
        assert three.key != four.key
        assert request(three, "GET", "/client-0004/state", key=four.key)[0] == 404
        assert request(three, "GET", "/client-0003/../client-0004/state")[0] == 404
        assert request(four, "GET", "/client-0004/state", key=three.key)[0] == 403
        assert "four's" not in str(request(three, "GET", "/client-0003/state")[1])


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
)
def test_other_pages_are_refused(folder, headers):
    with running(folder) as server:
        for method, path in (("GET", "state"), ("POST", "entries")):
            body = entries() if method == "POST" else None
            status, _ = request(server, method, server.root + path, body, headers=headers)
            assert status in (403, 421)
        status, _ = request(server, "OPTIONS", server.root + "entries")
        assert status == 405  # no preflight succeeds, so no other page can send the key's header


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"entries": 3},
        {"entries": ["x"]},
        {"entries": [{"question": "a", "value": 0.5, "once": "1"}]},
        {"entries": [{"question": "a", "value": 1}]},
        {"entries": [{"question": "a", "value": 1, "once": ""}]},
        {"entries": [{"question": "a", "value": "1", "once": "1"}]},
        {"entries": [{"question": ["a"], "value": 1, "once": "1"}]},
        {"entries": [{"question": "a", "value": None}]},
        {"entries": [{"question": "a", "once": "1"}]},
        {"entries": [{"skip": "a"}]},
        {"entries": [{"skip": 3, "once": "1"}]},
        {"entries": [{"undo": "", "once": "1"}]},
        {"entries": [{"undo": "a", "once": ""}]},
        {"entries": [{"more": True}] * 300},
        {"entries": [{"question": "a", "value": 1, "once": "x" * 101}]},  # it is kept for ever
        {"entries": [{"question": "a", "value": 1, "once": "1", "note": "x" * 501}]},
    ],
)
def test_a_malformed_entry_changes_nothing(folder, body):
    folder.ask([rate("a")])
    with running(folder) as server:
        assert request(server, "POST", server.root + "entries", body)[0] == 400
    assert folder.answers() == []


def test_bodies_that_are_no_json_or_too_long_are_refused(folder):
    with running(folder) as server:
        path, json_type = server.root + "entries", {"Content-Type": "application/json"}
        assert request(server, "POST", path, raw="{", headers=json_type)[0] == 400
        assert request(server, "POST", path, raw="[" * 99_999, headers=json_type)[0] == 400
        assert request(server, "POST", path, raw="a=1")[0] == 415
        many = {"Content-Length": "999999999", **json_type}
        assert request(server, "POST", path, raw="", headers=many)[0] == 413


def test_entries_are_taken_in_order_and_once(folder):
    folder.ask([rate(name) for name in "abc"])
    some = entries(
        {"question": "a", "value": 1}, {"question": "b", "value": 0}, {"undo": "b"},
        {"question": "b", "value": -1},
    )  # fmt: skip
    with running(folder) as server:
        for _ in range(2):
            status, said = request(server, "POST", server.root + "entries", some)
            assert status == 200
            assert said["progress"] == {"answered": 2, "pending": 1, "sitting": 2, "unsure": 0}
            assert [one["id"] for one in said["recent"]] == ["b", "a"]
    assert folder.answers() == [Answer("a", 1), Answer("b", -1)]


def test_doubts_and_skips_are_told_apart_from_answers(folder):
    folder.ask([rate(name) for name in "abc"])
    some = entries({"skip": "a"}, {"question": "b", "value": None}, {"question": "c", "value": 0})
    with running(folder) as server:
        for _ in range(2):
            status, said = request(server, "POST", server.root + "entries", some)
            assert status == 200
            assert said["progress"] == {"answered": 1, "pending": 1, "sitting": 1, "unsure": 1}
            recent = [(one["id"], one["value"], one["skip"]) for one in said["recent"]]
            assert recent == [("c", 0, False), ("b", None, False), ("a", None, True)]
            assert [one["id"] for one in said["questions"]] == ["a"]
    assert folder.answers() == [Answer("c", 0)]


def test_a_full_disk_loses_nothing_and_its_path_is_told_to_whoever_runs_it(
    folder, monkeypatch, capsys
):
    folder.ask([rate("a"), rate("b")])
    folder.answer("a", 1)
    write, full = os.pwrite, [True]

    def until_full(file, data, at):
        if full and b"question" in data:
            write(file, data[:9], at)  # half a line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", until_full)
    with running(folder) as server:
        answer = entries({"question": "b", "value": 1})
        for _ in range(2):
            status, said = request(server, "POST", server.root + "entries", answer)
            assert status == 503
            assert str(folder.path) not in said["error"]
            assert "cannot read or write them just now" in said["error"]
        assert request(server, "GET", server.root + "state")[1]["progress"]["answered"] == 1
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1  # a page tries again every few seconds
        assert f"{folder.path}: No space left on device" in told[0]
        full.clear()
        assert request(server, "POST", server.root + "entries", answer)[0] == 200
    assert folder.answers() == [Answer("a", 1), Answer("b", 1)]


def test_a_full_disk_at_the_start_is_one_line(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "write_atomically", full)
    with pytest.raises(UserError, match="No space left on device"):
        open_page(folder, 3)


def test_a_name_is_the_same_in_capitals(folder):
    with running(folder, at=Listen("LocalHost", "127.0.0.1")) as server:
        for name in ("localhost", "LOCALHOST"):
            host = {"Host": f"{name}:{server.server_port}"}
            assert request(server, "GET", server.root + "state", headers=host)[0] == 200


def test_trouble_with_the_disk_is_told_and_ends(folder, capsys):
    folder.ask([rate("a")])
    with running(folder) as server:
        (folder.path / "answers.jsonl").write_text("not json\n")
        answer = entries({"question": "a", "value": 1})
        status, said = request(server, "POST", server.root + "entries", answer)
        assert (status, "cannot read or write" in said["error"]) == (503, True)
        assert "line 1 is damaged" in capsys.readouterr().err
        (folder.path / "answers.jsonl").write_text("")
        assert request(server, "POST", server.root + "entries", answer)[0] == 200
    assert folder.answers() == [Answer("a", 1)]


def test_address_and_key_last_and_a_port_that_is_lost_is_told(folder):
    with running(folder) as server:
        url, site, port = server.url, server.site, server.server_port
    with running(folder, port=port) as server:
        assert (server.url, server.moved) == (url, "")
    with running(folder) as server:
        assert (server.url, server.moved) == (url, "")
    with socket.create_server(("127.0.0.1", port)), running(folder) as server:
        assert server.url != url
        assert server.key in url
        assert server.moved == site


@pytest.mark.parametrize(
    "options", [{}, {"port": 0, "at": Listen("localhost", "127.0.0.1")}, {"new_links": True}]
)
def test_a_client_that_is_served_is_not_served_a_second_time(folder, options):
    """It would take another port, and all links that were sent would open nothing."""
    people = {"people": ["anna"]}
    with running(folder, **people) as server:
        kept = (folder.path / "page.json").read_text()
        with pytest.raises(UserError) as told, open_page(folder, 3, **people, **options):
            pass
        assert str(told.value) == (
            f"client 3 is already served by process {os.getpid()}, stop that first; "
            f"anna at {server.links['anna']}, overview at {server.url}"
        )
        assert (folder.path / "page.lock").stat().st_mode & 0o777 == 0o600
        assert (folder.path / "page.json").read_text() == kept
        assert request(server, "GET", server.root + "overview")[0] == 200
    with running(folder, **people) as again:
        assert again.links == server.links


def test_an_address_with_nothing_behind_it_is_a_page_for_people_and_a_line_for_scripts(folder):
    folder.ask([rate("a", "a secret item")])
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with running(folder) as server:
        for path in ("/", "/client-0003", "/client-0004/", "/a/b", f"{server.root}nothing"):
            for key in (None, True):
                status, text = request(server, "GET", path, key=key, headers=browser)
                assert (status, "nothing at this address</h1>" in text) == (404, True)
                assert not any(word in text for word in ("secret", "client-0003", server.key))
            assert request(server, "GET", path)[1] == {"error": "There is nothing at this address."}
        for part in ("/page.css", "/icon.svg"):
            assert request(server, "GET", part, key=None)[0] == 200
        for part in ("/page.js", "/state", "/people"):
            assert request(server, "GET", part)[0] == 404


# The command --------------------------------------------------------------------------------------


def test_mistakes_are_one_line(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for words, said in {
        ("nowhere", "--client", "1"): "nowhere does not exist",
        (str(tmp_path / "empty"), "--client", "1"): "is no run of fedrl",
        ("--client", "1"): "name a run's folder",
        ("--folder", str(tmp_path / "none"), "--client", "1"): "does not exist",
        ("--folder", str(tmp_path), "--client", "99"): "has no client-0099",
        ("--folder", str(tmp_path), "--client", "-1"): "numbered from 0",
        ("--folder", str(tmp_path), "--client", "1", "--limit", "0"): "at least 1",
        ("--folder", str(tmp_path), "--client", "1", "--port", "70000"): "--port is 70000",
        ("--folder", str(tmp_path)): "--client",
    }.items():
        assert call(["feedback", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not (tmp_path / "client-0099").exists()


def test_a_space_in_a_name_is_a_forgotten_comma(tmp_path, capsys, monkeypatch):
    folder = Folder(client_folder(tmp_path, 3))
    folder.ask([rate("a")])
    words = ["feedback", "--folder", str(tmp_path), "--client", "3", "--people"]
    assert call([*words, "eve, anna ben"]) == 2
    assert capsys.readouterr().err.endswith(
        "--people names 'anna ben', with a space: write anna,ben if these are several people, "
        "and anna-ben if this is one\n"
    )
    assert folder.people == []
    served = []
    monkeypatch.setattr(page, "serve", lambda *words: served.append(words[5]) or 0)
    assert call([*words, "anna, ben"]) == 0
    folder.of("anna ben")
    assert call([*words, "anna ben"]) == 2  # by an older version, and nothing was ever said
    folder.of("anna ben").answer("a", 1)
    assert call([*words, "anna ben"]) == 0
    assert served == [("anna", "ben"), ("anna ben",)]


def test_a_run_that_asks_nobody_says_so(tmp_path, capsys):
    (tmp_path / "config.toml").write_text('[algorithm]\nname = "fedpg"\n')
    assert call(["feedback", str(tmp_path), "--client", "0"]) == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop, ignores", [(signal.SIGINT, ""), (signal.SIGTERM, ""), (signal.SIGTERM, "SIGINT,SIGHUP")]
)
def test_the_command_prints_its_address_and_ends_in_one_line(tmp_path, stop, ignores):
    Folder(client_folder(tmp_path, 3))
    words = ["feedback", "--folder", str(tmp_path), "--client", "3", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with python("-m", "fedrl", *words, ignores=ignores, **pipes) as process:
        first = process.stdout.readline()
        address = urlsplit(first.split()[4])
        assert (address.hostname, address.path) == ("127.0.0.1", "/client-0003/")
        assert address.fragment
        line = http.client.HTTPConnection("127.0.0.1", address.port, timeout=20)
        line.request("GET", "/client-0003/state", headers={"X-Fedrl-Key": address.fragment})
        assert line.getresponse().status == 200
        process.send_signal(stop)
        rest, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert rest.strip() == f"closed; 0 answers kept in {tmp_path / 'client-0003'}"
    assert errors == ""


# A run --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_takes_the_answers_in_its_next_round_and_keeps_no_item(tmp_path, capsys, monkeypatch):
    """Begun in one folder and resumed in another."""
    pytest.importorskip("numba", reason="FedRLHF's network needs the extra classic")
    people, elsewhere = tmp_path / "people", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    flags = ["--algorithm.feedback", "live", "--algorithm.feedback_folder", "people"]
    small = ["--federation.clients", "2", "--rounds", "1", "--out", str(tmp_path / "runs")]
    assert call(["run", "fedrlhf/movielens", *flags, *small]) == 0
    assert "these films are invented" in capsys.readouterr().err
    (run,) = (tmp_path / "runs").glob("*/*")
    monkeypatch.chdir(elsewhere)
    assert call(["feedback", str(run), "--client", "2"]) == 2
    assert "are 0 to 1" in capsys.readouterr().err
    assert private_folder(run, 1) == people

    folder = Folder(client_folder(people, 1))
    waiting = folder.pending()
    for question in waiting[:5]:
        assert folder.answer(question.id, 1)
    assert folder.answer(waiting[5].id, None)  # cannot say: a run must not count it
    assert folder.skip(waiting[6].id)
    assert call(["run", "--resume", str(run), "--rounds", "2"]) == 0
    last = [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()[-2:]]
    assert [line["env/answers"] for line in last] == [0, 5]

    asked = folder.view().queries.values()
    private = {word.encode() for one in asked for word in (one.id, *one.items)}
    assert len(private) > 20
    for file in run.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        assert not any(word in data for word in private), file

    people.rename(tmp_path / "moved")
    assert call(["feedback", str(run), "--client", "1"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{people}, the algorithm.feedback_folder of {run}, does not exist" in error
    assert not people.exists()
