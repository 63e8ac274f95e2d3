"""Who may ask a SuperLink for what; certificates that hold; commands that say what is wrong."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fedrl.config.flower import Settings
from fedrl.config.loading import resolve
from fedrl.core.types import UserError
from fedrl.engines.flower.connection import FOLDER, Connection, find, save

CARTPOLE = {"algorithm": {"name": "fedsvrpg-m"}, "world": {"name": "cartpole"}}


# The guard --------------------------------------------------------------------------------------


SECRET = b"the driver's"
MEMBER, STRANGER = b"a registered key", b"another key"


def ask(
    path: str,
    sender: str,
    headers: dict[str, str] | None = None,
    answer: int = 0,
    key: bytes | None = MEMBER,
    secret: bytes | None = None,
    opened: bool = False,
    body: bytes = b"",
) -> tuple[int, bool]:
    """The guard's status, and whether the SuperLink behind it was reached."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.engines.flower import driver_auth
    from fedrl.engines.flower.superlink_guard import Guard

    reached: list[str] = []
    sent: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])
        assert (await receive())["body"] == body
        if answer:
            await send({"type": "http.response.start", "status": answer, "headers": []})

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    pairs = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
    if secret is not None:
        signed = driver_auth.sign(secret, path, body)
        pairs.append((driver_auth.HEADER.encode(), signed.encode()))
    scope = {"type": "http", "path": path, "client": (sender, 4000), "headers": pairs}
    insiders = {"127.0.0.1", "10.0.0.9"}
    guard = Guard(behind, insiders, SECRET, lambda _: key, lambda k: k == MEMBER, opened)
    asyncio.run(guard(scope, receive, send))
    return (sent[0]["status"] if sent else 0), bool(reached)


@pytest.mark.parametrize(
    "path", ["/v1/control/register-node", "/v1/control/start-run", "/v1/runtime/acquire-task",
             "/v1/runtime/pull-messages", "/docs", "/", "/v1/fleetx", "/V1/FLEET/pull-messages"]
)  # fmt: skip
def test_outsiders_are_nodes_and_nothing_else(path: str):
    for secret in (SECRET, None):
        assert ask(path, "10.0.0.7", secret=secret) == (403, False)
    for sender in ("127.0.0.1", "10.0.0.9"):
        assert ask(path, sender, secret=SECRET) == (0, True)
        assert ask(path, sender) == (401, False)
        assert ask(path, sender, secret=b"a guess") == (401, False)


def test_nodes_come_in():
    assert ask("/v1/fleet/pull-messages", "10.0.0.7") == (0, True)
    for key in (STRANGER, None):  # the secret makes nobody a node
        assert ask("/v1/fleet/pull-messages", "127.0.0.1", key=key, secret=SECRET) == (401, False)


@pytest.mark.parametrize("opened", [False, True])
def test_on_loopback_nodes_may_register_themselves(opened: bool):
    found = ask("/v1/fleet/register-node", "127.0.0.1", key=STRANGER, opened=opened)
    assert found == ((0, True) if opened else (401, False))
    assert ask("/v1/fleet/push-object", "127.0.0.1", key=STRANGER, opened=opened) == (401, False)


@pytest.mark.parametrize("answer, said", [(200, False), (401, True), (412, True)])
def test_who_is_refused_is_in_the_log(answer: int, said: bool, capsys: Any):
    assert ask("/v1/fleet/activate-node", "10.0.0.7", answer=answer) == (answer, True)
    line = f"refused /v1/fleet/activate-node from 10.0.0.7 ({answer})"
    assert (line in capsys.readouterr().err) == said
    ask("/v1/control/start-run\n12:00:00 all is well", "10.0.0.7")
    told = capsys.readouterr().err
    assert "refused /v1/control/start-run 12:00:00 all is well from 10.0.0.7 (400)\n" in told


@pytest.mark.parametrize("host", ["x/v1/runtime/push-object?", "x#", "a@b", "x\\y", "x y"])
def test_no_host_makes_one_path_of_another(host: str):
    """Whether a node is authenticated is decided by a URL that begins with the Host header."""
    assert ask("/v1/fleet/push-object", "10.0.0.7", {"host": host}) == (400, False)
    assert ask("/v1/fleet/push-object", "10.0.0.7", {"host": "[::1]:9092"}) == (0, True)
    assert ask("/v1/fleet/push-object?x", "10.0.0.7") == (400, False)


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"content-length": "5000000"}, 0),
        ({"content-length": "33048576"}, 0),
        ({"content-length": "33048577"}, 413),
        ({"content-length": "999999999999"}, 413),
        ({"content-length": "-1"}, 400),
        ({"content-length": "many"}, 400),
        ({"content-length": "0" * 20 + "999999999999"}, 400),
        ({"content-length": "0" * 5000 + "1"}, 400),
        ({"content-length": "1" * 5000}, 400),
        ({"content-length": " 5"}, 400),
        ({"content-length": "٥"}, 400),
        ({"transfer-encoding": "chunked"}, 411),
        ({"transfer-encoding": "chunked", "content-length": "5"}, 411),
    ],
)
def test_no_request_is_larger_than_a_piece(headers: dict[str, str], status: int):
    found, reached = ask("/v1/fleet/push-object", "10.0.0.7", headers)
    assert found == status
    assert reached == (status == 0)


@pytest.mark.parametrize("path", ["/v1/fleet/push-messages", "/v1/fleet/activate-node"])
def test_only_pieces_are_large(path: str):
    """Of other messages two bytes may become an object of a hundred."""
    assert ask(path, "10.0.0.7", {"content-length": "1048576"}) == (0, True)
    assert ask(path, "10.0.0.7", {"content-length": "1048577"}) == (413, False)


# Keys -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cryptography", reason="needs the extra flower")
    from fedrl.engines.flower import keys

    folder = tmp_path_factory.mktemp("keys")
    keys.make_server(folder, ["hub.example", "127.0.0.1"])
    return folder


def handshake(folder: Path, ca: Path, host: str) -> str:
    """The protocol that a client who trusts `ca` and asks for `host` ends up with."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_verify_locations(ca)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=host) as connection:
            return str(connection.version())
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("host", ["hub.example", "127.0.0.1"])
def test_the_certificate_holds_for_its_names(folder: Path, host: str):
    assert handshake(folder, folder / "ca.pem", host) == "TLSv1.3"


def test_it_holds_for_no_other_name_and_under_no_other_ca(folder: Path, tmp_path: Path):
    from fedrl.engines.flower import keys

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(folder, folder / "ca.pem", "evil.example")
    keys.make_server(tmp_path / "other", ["hub.example"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(folder, tmp_path / "other" / "ca.pem", "hub.example")


def test_private_files_are_their_owners_and_never_replaced(folder: Path, tmp_path: Path):
    from fedrl.engines.flower import keys

    for name in ("ca.key", "server.key", "secret"):
        assert (folder / name).stat().st_mode & 0o077 == 0
    before = (folder / "ca.key").read_bytes()
    with pytest.raises(UserError, match="there already"):
        keys.make_server(folder, ["hub.example"])
    assert (folder / "ca.key").read_bytes() == before
    keys.make_node(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    assert (tmp_path / "key.pub").read_text().startswith("ecdsa-sha2-nistp384 ")


@pytest.mark.parametrize("host", ["h" * 300, "hüb.example"])
def test_names_that_no_certificate_can_have_are_told(host: str, tmp_path: Path):
    pytest.importorskip("cryptography", reason="needs the extra flower")
    from fedrl.engines.flower import keys

    if host.isascii():
        keys.make_server(tmp_path / "long", [host])
    else:
        with pytest.raises(UserError, match="cannot stand in a certificate"):
            keys.make_server(tmp_path / "wrong", [host])


def test_places_that_cannot_be_written_are_told(tmp_path: Path):
    pytest.importorskip("cryptography", reason="needs the extra flower")
    from fedrl.engines.flower import keys

    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        keys.make_node(tmp_path / "file" / "key")


@pytest.mark.parametrize(
    "host, name",
    [("0.0.0.0", "127.0.0.1"), ("::", "localhost"), ("10.0.0.5", "10.0.0.5"), ("::1", "[::1]")],
)
def test_a_superlink_is_reached_where_it_listens(host: str, name: str):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.engines.flower import superlink

    assert superlink.local(host) == name


# Settings and commands --------------------------------------------------------------------------


def test_connections_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    wanted = Connection("hub.example:9092", '/a/North\'s \\ "own"/ca.pem', "/ü/secret")
    path = save("hospital", wanted)
    assert find("hospital") == find(str(path)) == wanted
    with pytest.raises(UserError, match="choose from hospital"):
        find("hospitl")


@pytest.mark.parametrize("address", ["hub:9O92", "hub", ":9092", "hub:"])
def test_an_address_that_is_none_is_told(address: str, tmp_path: Path):
    path = save_at(tmp_path / "x.toml", Connection(address))
    with pytest.raises(UserError, match="it must be HOST:PORT"):
        find(str(path))


def save_at(path: Path, connection: Connection) -> Path:
    path.write_text(f"address = '{connection.address}'")
    return path


def test_a_ca_in_another_form_is_told(tmp_path: Path):
    (tmp_path / "ca.der").write_bytes(b"\x30\x82")
    with pytest.raises(UserError, match="no certificate in PEM form"):
        Connection("x:1", str(tmp_path / "ca.der")).read_ca()


def test_engine_and_connection_go_together():
    for flags in (["--engine", "flower"], ["--connection", "x"]):
        with pytest.raises(UserError, match="go together"):
            resolve(CARTPOLE, flags)
    resolve(CARTPOLE, ["--engine", "flower", "--connection", "x"])


@pytest.mark.parametrize("wrong", [{"piece_mb": 0}, {"piece_mb": 64}, {"wait": -1}])
def test_impossible_settings_are_refused(wrong: dict):
    with pytest.raises(UserError, match=f"flower.{next(iter(wrong))}"):
        Settings(**wrong)


@pytest.mark.slow
def test_flower_is_not_loaded_before_it_is_asked_for():
    code = "import sys, fedrl.cli, fedrl.runs.train; sys.exit('flwr' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "words, said",
    [
        (["down"], "choose from up, keys, link, node"),
        (["up", "--clients", "0"], "--clients is 0"),
        (["link", "--folder", "nowhere"], "fedrl flower keys server nowhere"),
        (["node", "--client", "1", "--superlink", "a:1", "--folder", "x"], "--ca and --key"),
        (["node", "--client", "-1", "--superlink", "a:1", "--folder", "x", "--insecure"], "from 0"),
        (["node", "--client", "1", "--superlink", "a:1", "--folder", "x", "--poll", "9"], "is 9;"),
        (["up", "--poll", "0"], "--poll is 0; it lies between 0.1 and"),
    ],
)
def test_mistakes_get_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    from fedrl.cli import call

    monkeypatch.chdir(tmp_path)
    assert call(["flower", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_run_does_not_move_between_flower_and_other_engines(tmp_path: Path):
    from fedrl.runs import train as runs

    config = resolve(CARTPOLE | {"out": str(tmp_path)})
    run = runs.start(config)
    run.close()
    with pytest.raises(UserError, match="goes on with inprocess"):
        runs.resume(run.path, ["--engine", "flower", "--connection", "x"])


def test_how_a_run_is_driven_is_not_the_nodes_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A node keeps its model loaded while the recipe stays the same."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.config.build import build_algorithm
    from fedrl.engines.flower.driver import open_engine

    monkeypatch.setenv(FOLDER, str(tmp_path))
    save("hub", Connection("hub.example:9092"))

    def sent(*flags: str) -> str:
        here = ("--engine", "flower", "--connection", "hub", *flags)
        config = resolve(CARTPOLE, here)
        return open_engine(config, "run", build_algorithm(config), print, 2).recipe.text

    driven = (
        "--federation.deadline",
        "60",
        "--federation.retries",
        "0",
    )
    assert sent(*driven, "--out", "elsewhere") == sent()
    assert sent("--seed", "1") != sent()
    assert "quorum = 1.0" in sent("--federation.quorum", "1")  # a node's policy reads it
    assert "hang" in sent("--faults.clients", "1", "--faults.kind", "hang", *driven[:2])


def test_a_connection_that_is_none_leaves_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.runs import train as runs

    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    here = ["--engine", "flower", "--connection", "nowhere", "--out", str(tmp_path / "runs")]
    with pytest.raises(UserError, match="connection is 'nowhere', but there is no"):
        runs.start(resolve(CARTPOLE, here))
    assert not (tmp_path / "runs").exists()


def test_a_member_is_told_as_which_client_it_is_filed():
    """By the guard itself, and as no refusal: the SuperLink has no such path."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.engines.flower.superlink_guard import Guard

    said: list[Any] = []
    seen: list[Any] = []

    async def behind(*_: Any) -> None:
        pytest.fail("asked the SuperLink")

    async def send(event: Any) -> None:
        seen.append(event)

    guard = Guard(behind, set(), SECRET, lambda _: MEMBER, lambda k: k == MEMBER)
    guard.client_of = {MEMBER: "3"}.__getitem__
    guard._seldom.say = said.append  # type: ignore[method-assign]
    scope = {"type": "http", "path": "/v1/fleet/check", "headers": [], "client": ("1.2.3.4", 5)}
    asyncio.run(guard(scope, lambda: pytest.fail("read a body"), send))
    assert seen[0]["status"] == 200
    assert (b"x-fedrl-client", b"3") in seen[0]["headers"]
    assert not said
    assert ask("/v1/fleet/check", "1.2.3.4", key=b"a stranger's") == (401, False)
