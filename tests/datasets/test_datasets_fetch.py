"""Getting data: a publisher played by a local server that breaks off, lies and refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import http.client
import io
import json
import os
import re
import socket
import ssl
import threading
import urllib.error
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedrl.cli.data import data
from fedrl.core.types import UserError
from fedrl.datasets import DATASETS, Dataset, File, download, fetch, movielens

BODY = bytes(range(256)) * 4096  # 1 MiB: several chunks
SUM = hashlib.sha256(BODY).hexdigest()


class Publisher:
    """Serves `files`; `flaws` says what goes wrong with the next requests; `asked` what came."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.flaws: list[str] = []
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        span = request.headers["Range"]
        self.asked.append((request.path, span))
        flaw = self.flaws.pop(0) if self.flaws else ""
        body = self.files.get(request.path)
        if body is None:
            request.send_error(404)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", span)[1]) if span and flaw != "no range" else 0
        if start >= len(body):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        kind = "text/html" if flaw == "page" else "application/octet-stream"
        request.send_header("Content-Type", kind)
        length = "abc" if flaw == "no length" else str(len(body) - start)
        request.send_header("Content-Length", length)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.end_headers()
        rest = body[start:]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has had enough
            request.wfile.write(rest[: len(rest) // 2] if flaw == "break" else rest)


@pytest.fixture
def publisher():
    it = Publisher()
    thread = threading.Thread(target=it.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield it
    it.server.shutdown()
    thread.join()
    it.server.server_close()


@pytest.fixture
def toy(publisher, monkeypatch, tmp_path) -> Path:
    """A data set `toy` of one file, its publisher, and an empty cache; the folder it goes to."""
    for name in ("FEDRL_DATA", "FEDRL_MIRROR", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    publisher.files["/files/toy.bin"] = BODY
    file = File("toy.bin", f"{publisher.url}/files/toy.bin", len(BODY), SUM)
    dataset = Dataset("Toy data", "toy", "the tests", "for tests", (file,), (("toy.bin",),))
    monkeypatch.setitem(DATASETS, "toy", dataset)
    return tmp_path / "cache" / "fedrl" / "data" / "toy"


def by_hand(error: pytest.ExceptionInfo[UserError], folder: Path) -> str:
    """The two lines at most, after checking that they say what to save where, and what then."""
    lines = str(error.value)
    assert lines.count("\n") <= 1
    save = f"save {DATASETS['toy'].files[0].url} as {folder / 'toy.bin'}"
    assert f"{save} (make its folder), then run `fedrl data toy` again" in lines
    return lines


def test_a_download_is_checked_recorded_and_not_repeated(toy, publisher, capsys):
    assert fetch.fetch("toy", yes=True) == toy
    said = capsys.readouterr().err
    for fact in ("Toy data", "the tests", "for tests", "1.0 MB", str(toy), SUM):
        assert fact in said
    assert (toy / "toy.bin").read_bytes() == BODY
    record = json.loads((toy / fetch.RECORD).read_text())
    assert (record["file"], record["sha256"]) == ("toy.bin", SUM)
    assert record["from"] == f"{publisher.url}/files/toy.bin"
    assert {path.name for path in toy.iterdir()} == {"toy.bin", fetch.RECORD}
    assert fetch.fetch("toy") == toy  # there: no question and no request
    assert len(publisher.asked) == 1
    assert fetch.root("toy") == toy


def test_a_broken_download_goes_on_where_it_stopped(toy, publisher):
    publisher.flaws = ["break", "break"]
    for _ in range(2):
        with pytest.raises(UserError) as error:
            fetch.fetch("toy", yes=True)
        assert "broke off" in by_hand(error, toy)
        assert not (toy / "toy.bin").exists()
    fetch.fetch("toy", yes=True)
    assert (toy / "toy.bin").read_bytes() == BODY
    half, three = len(BODY) // 2, len(BODY) * 3 // 4
    assert [span for _, span in publisher.asked] == [None, f"bytes={half}-", f"bytes={three}-"]


def test_a_server_that_cannot_resume_sends_all(toy, publisher):
    publisher.flaws = ["break", "no range"]
    with pytest.raises(UserError):
        fetch.fetch("toy", yes=True)
    fetch.fetch("toy", yes=True)
    assert (toy / "toy.bin").read_bytes() == BODY


def test_a_part_longer_than_the_file_is_dropped(toy, publisher):
    toy.mkdir(parents=True)
    (toy / "toy.bin.part").write_bytes(BODY + b"more")
    fetch.fetch("toy", yes=True)
    assert (toy / "toy.bin").read_bytes() == BODY
    assert [span for _, span in publisher.asked] == [f"bytes={len(BODY) + 4}-", None]


def test_ctrl_c_keeps_what_arrived(toy, publisher, monkeypatch, capsys):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download.Progress, "advance", stop)
        with pytest.raises(KeyboardInterrupt):
            fetch.fetch("toy", yes=True)
    assert "same command" in capsys.readouterr().err
    assert (toy / "toy.bin.part").stat().st_size == download.CHUNK
    fetch.fetch("toy", yes=True)
    assert publisher.asked[-1][1] == f"bytes={download.CHUNK}-"
    assert (toy / "toy.bin").read_bytes() == BODY


def test_a_wrong_file_is_refused_and_forgotten(toy, publisher):
    publisher.files["/files/toy.bin"] = BODY[:-1] + b"!"
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    assert SUM in by_hand(error, toy)
    assert not toy.exists()
    publisher.files["/files/toy.bin"] = BODY
    fetch.fetch("toy", yes=True)


def test_a_page_instead_of_the_file(toy, publisher):
    publisher.flaws = ["page"]
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    assert "web page" in by_hand(error, toy)


def test_a_file_that_is_gone(toy, publisher):
    publisher.files.clear()
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    assert "127.0.0.1 answered 404" in by_hand(error, toy)


def test_offline(toy, monkeypatch):
    def no_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    told = by_hand(error, toy)
    assert "offline" in told
    assert "set FEDRL_MIRROR to an address that serves toy/toy.bin" in told
    assert "FEDRL_DATA to a folder with toy/ in it" in told


def test_nobody_listens(toy, publisher, monkeypatch):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("FEDRL_MIRROR", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UserError) as error:
            fetch.fetch("toy", yes=True)
    assert "refused" in by_hand(error, toy)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError("timed out"), "host.example does not answer"),
        (urllib.error.URLError(TimeoutError("timed out")), "host.example does not answer"),
        (urllib.error.URLError(ssl.SSLCertVerificationError(1, "self-signed")), "certificate"),
        (http.client.IncompleteRead(b""), "host.example broke off"),
        (PermissionError(errno.EACCES, "Permission denied", "/x.part"), "cannot write /x.part"),
    ],
)
def test_other_failures_in_words(error, words):
    assert words in download.failure_words(error, "https://host.example/x")


def test_a_disk_that_fills_up(toy, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download.os, "fsync", full)
    with pytest.raises(UserError, match=r"disk is full.*FEDRL_DATA.*`fedrl data toy`") as error:
        fetch.fetch("toy", yes=True)
    assert "save" not in str(error.value)  # no address is to blame


def test_a_disk_that_is_too_small_is_known_beforehand(toy, publisher, monkeypatch):
    file = dataclasses.replace(DATASETS["toy"].files[0], size=10**18)
    monkeypatch.setitem(DATASETS, "toy", dataclasses.replace(DATASETS["toy"], files=(file,)))
    with pytest.raises(UserError, match="FEDRL_DATA to a folder on a larger disk"):
        fetch.fetch("toy", yes=True)
    assert publisher.asked == []


def test_a_cache_that_cannot_be_written(toy, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set FEDRL_DATA to a folder that you can write"):
        fetch.fetch("toy", yes=True)


def test_two_downloads_at_a_time_do_not_mix(toy, publisher):
    toy.mkdir(parents=True)
    with open(toy / "toy.bin.part", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process"):
            fetch.fetch("toy", yes=True)
    assert publisher.asked == []


def test_terms_are_agreed_to_first(toy, publisher, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UserError, match="agree to these terms with: fedrl data toy --yes"):
        fetch.fetch("toy")
    for answer in ("", "\n", "n\n"):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        with pytest.raises(UserError, match="nothing downloaded"):
            fetch.fetch("toy")
    assert publisher.asked == []
    monkeypatch.setattr("sys.stdin", Terminal("Y\n"))
    assert (fetch.fetch("toy") / "toy.bin").exists()


def test_fedrl_data_wins_over_the_cache(toy, monkeypatch, tmp_path):
    fetch.fetch("toy", yes=True)
    monkeypatch.setenv("FEDRL_DATA", str(tmp_path / "mine"))
    with pytest.raises(UserError, match=r"FEDRL_DATA is .*mine, .* `fedrl data toy`"):
        fetch.root("toy")
    assert not fetch.present("toy")
    assert fetch.fetch("toy", yes=True) == tmp_path / "mine" / "toy" == fetch.root("toy")
    assert (tmp_path / "mine" / "toy" / "toy.bin").read_bytes() == BODY


def test_data_that_is_not_here(toy):
    with pytest.raises(UserError, match=r"`fedrl data toy`.*FEDRL_DATA to .* holds toy/"):
        fetch.root("toy")
    with pytest.raises(UserError, match="'movielens'"):
        fetch.root("movielense")


def test_files_saved_by_hand(toy, publisher, monkeypatch):
    """Of two files, one was saved by hand: it is taken when right and left alone when not."""
    two = hashlib.sha256(b"two").hexdigest()
    second = File("two.bin", f"{publisher.url}/files/two.bin", 3, two)
    both = dataclasses.replace(
        DATASETS["toy"],
        files=(*DATASETS["toy"].files, second),
        layouts=(("toy.bin", "two.bin"),),
    )
    monkeypatch.setitem(DATASETS, "toy", both)
    publisher.files["/files/two.bin"] = b"two"
    toy.mkdir(parents=True)
    (toy / "toy.bin").write_bytes(b"something else")
    with pytest.raises(UserError, match="move it away"):
        fetch.fetch("toy", yes=True)
    assert (toy / "toy.bin").read_bytes() == b"something else"
    (toy / "toy.bin").write_bytes(BODY)
    fetch.fetch("toy", yes=True)
    assert [path for path, _ in publisher.asked] == ["/files/two.bin"]


def test_mirrors(toy, publisher, monkeypatch, tmp_path):
    publisher.files = {"/pub/toy/toy.bin": BODY}
    monkeypatch.setenv("FEDRL_MIRROR", f"{publisher.url}/pub/")
    fetch.fetch("toy", yes=True)
    (tmp_path / "disk" / "toy").mkdir(parents=True)
    (tmp_path / "disk" / "toy" / "toy.bin").write_bytes(BODY)
    monkeypatch.setenv("FEDRL_MIRROR", (tmp_path / "disk").as_uri())
    monkeypatch.setenv("FEDRL_DATA", str(tmp_path / "again"))
    assert (fetch.fetch("toy", yes=True) / "toy.bin").read_bytes() == BODY


@pytest.mark.parametrize("where", ["/pub/", "/pub", "/nobody"])
def test_a_mirror_without_the_file(toy, publisher, monkeypatch, where):
    """What was asked for in full, how a mirror is laid out, and the publisher's address."""
    mirror = publisher.url + where
    monkeypatch.setenv("FEDRL_MIRROR", mirror)
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    told = by_hand(error, toy)
    assert f"answered 404 Not Found (asked for {mirror.rstrip('/')}/toy/toy.bin)" in told
    assert "FEDRL_MIRROR must be an address that serves toy/toy.bin" in told
    assert "unset FEDRL_MIRROR" in told


def test_a_mirror_with_another_file(toy, publisher, monkeypatch):
    publisher.files["/pub/toy/toy.bin"] = b"other"
    monkeypatch.setenv("FEDRL_MIRROR", f"{publisher.url}/pub")
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    told = by_hand(error, toy)
    assert told.count(f"{publisher.url}/pub/toy/toy.bin") == 1
    assert "unset FEDRL_MIRROR" in told


def test_a_mirror_on_disk_without_the_file(toy, monkeypatch, tmp_path):
    mirror = (tmp_path / "a disk").as_uri()
    monkeypatch.setenv("FEDRL_MIRROR", mirror)
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    assert f"{mirror}/toy/toy.bin: No such file or directory; FEDRL_MIRROR" in by_hand(error, toy)


@pytest.mark.parametrize(
    "mirror",
    [
        "mirror.example",
        "ftp://mirror.example/pub",
        "/data/mirror",
        "https:///pub",
        "https://mirror.example:port/",
        "http://[::1/pub",
        "http://mirror.example/my pub",
        "http://mirror.example/püb",
        "file://data/mirror",
        "file:mirror",
    ],
)
def test_a_mirror_that_is_no_address(toy, publisher, monkeypatch, capsys, mirror):
    monkeypatch.setenv("FEDRL_MIRROR", mirror)
    with pytest.raises(UserError) as error:
        fetch.fetch("toy")
    told = str(error.value)
    assert told == f"FEDRL_MIRROR is {mirror!r}; https://HOST/PATH or file:///FOLDER is expected"
    assert capsys.readouterr().err == ""  # before anybody reads and agrees to terms
    assert not toy.exists()


def test_a_failure_leaves_no_folders_behind(toy, publisher, monkeypatch, tmp_path):
    before = publisher.files.copy()
    publisher.files.clear()
    with pytest.raises(UserError, match="404"):
        fetch.fetch("toy", yes=True)
    assert not (tmp_path / "cache").exists()
    with pytest.raises(UserError, match="toy is not here"):
        fetch.root("toy")
    (tmp_path / "cache" / "fedrl").mkdir(parents=True)
    with pytest.raises(UserError, match="404"):
        fetch.fetch("toy", yes=True)
    assert list((tmp_path / "cache" / "fedrl").iterdir()) == []  # this one was there before
    publisher.files, publisher.flaws = before, ["break"]
    with pytest.raises(UserError, match="broke off"):
        fetch.fetch("toy", yes=True)
    assert [path.name for path in toy.iterdir()] == ["toy.bin.part"]


def test_an_empty_folder_holds_no_data(toy, monkeypatch):
    toy.mkdir(parents=True)
    with pytest.raises(UserError, match="toy is not here; get it with `fedrl data toy`"):
        fetch.root("toy")
    monkeypatch.setenv("FEDRL_DATA", str(toy.parent))
    with pytest.raises(
        UserError, match="has no toy/ with data in it; get it with `fedrl data toy`"
    ):
        fetch.root("toy")
    (toy / "something").touch()
    assert fetch.root("toy") == toy


def test_fedrl_data_one_level_too_deep(toy, publisher, monkeypatch, capsys):
    fetch.fetch("toy", yes=True)
    monkeypatch.setenv("FEDRL_DATA", str(toy))
    asked = len(publisher.asked)
    meant = re.escape(f"did you mean {toy.parent}?")
    with pytest.raises(UserError, match=meant):
        fetch.root("toy")
    with pytest.raises(UserError, match=meant):
        fetch.fetch("toy", yes=True)
    data([])
    assert re.search(meant, capsys.readouterr().out)
    monkeypatch.chdir(toy)
    monkeypatch.setenv("FEDRL_DATA", ".")
    with pytest.raises(UserError, match=meant):
        fetch.root("toy")
    assert len(publisher.asked) == asked


def test_a_data_folder_may_be_called_like_a_data_set(toy, monkeypatch, tmp_path):
    (tmp_path / "toy" / "toy").mkdir(parents=True)
    (tmp_path / "toy" / "toy" / "toy.bin").touch()
    monkeypatch.setenv("FEDRL_DATA", str(tmp_path / "toy"))
    assert fetch.doubt() is None
    assert fetch.root("toy") == tmp_path / "toy" / "toy"


def test_fedrl_data_that_is_no_folder(toy, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FEDRL_DATA", str(tmp_path / "mine"))
    data([])
    assert capsys.readouterr().out.startswith(
        f"FEDRL_DATA is {tmp_path / 'mine'}, which is not there"
    )
    (tmp_path / "mine").touch()
    data([])
    assert capsys.readouterr().out.startswith(
        f"FEDRL_DATA is {tmp_path / 'mine'}, which is no folder"
    )
    with pytest.raises(UserError, match="which is no folder; get it with"):
        fetch.root("toy")
    monkeypatch.delenv("FEDRL_DATA")
    data([])
    assert "FEDRL_DATA" not in capsys.readouterr().out


@pytest.mark.parametrize("name", DATASETS)
def test_what_is_published_is_what_the_readers_know(name, monkeypatch, tmp_path):
    """A complete download counts as present, an incomplete one does not."""
    dataset = DATASETS[name]
    monkeypatch.setenv("FEDRL_DATA", str(tmp_path))
    folder = tmp_path / dataset.folder
    folder.mkdir()
    for file in dataset.files:
        assert not fetch.present(name)
        (folder / file.name).touch()
        assert file.url.startswith("https://")
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
    assert fetch.present(name)


def test_download_then_load(toy, publisher, monkeypatch):
    """The command, from a mirror, through to the reader."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as parts:
        parts.writestr(
            "ml-latest-small/ratings.csv", "userId,movieId,rating,timestamp\r\n1,7,4.5,1000\r\n"
        )
        parts.writestr("ml-latest-small/movies.csv", "movieId,title,genres\r\n7,Seven,Drama\r\n")
    packed = archive.getvalue()
    publisher.files["/movielens/ml-latest-small.zip"] = packed
    real = DATASETS["movielens"]
    file = dataclasses.replace(real.files[0], sha256=hashlib.sha256(packed).hexdigest())
    monkeypatch.setitem(DATASETS, "movielens", dataclasses.replace(real, files=(file,)))
    monkeypatch.setenv("FEDRL_MIRROR", publisher.url)
    assert data(["movielens", "--yes"]) == 0
    assert movielens.load(fetch.root("movielens")).rating.tolist() == [4.5]


def test_the_list_says_what_is_where(toy, capsys):
    data([])
    before = capsys.readouterr().out
    fetch.fetch("toy", yes=True)
    data([])
    after = capsys.readouterr().out
    assert "not here; fedrl data toy" in before
    assert str(toy) in after
    for name, dataset in DATASETS.items():
        assert name in after
        assert dataset.licence in after


def test_a_server_that_sends_without_end_is_stopped(toy, publisher):
    publisher.files["/files/toy.bin"] = BODY * 5  # the file is known to have one MiB
    with pytest.raises(UserError, match="sends more than"):
        fetch.fetch("toy", yes=True)
    assert not toy.exists()


def test_a_length_that_is_no_number_does_no_harm(toy, publisher):
    publisher.flaws = ["no length"]
    fetch.fetch("toy", yes=True)
    assert (toy / "toy.bin").read_bytes() == BODY


def test_an_address_that_is_none_is_one_line(toy, monkeypatch):
    monkeypatch.setenv("FEDRL_MIRROR", "http://[::1")
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", yes=True)
    assert "http://[::1" in str(error.value)
    assert str(error.value).count("\n") <= 1
