"""Files of keys as people have them: with spaces in their names, half written, not to be read."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

import fedrl
from fedrl.cli import call
from fedrl.core import private_files
from fedrl.core.types import UserError
from fedrl.engines.flower import connection, key_folder, keys
from fedrl.privacy.secure_aggregation import identity, public_keys


def test_a_name_with_spaces_is_a_name(tmp_path: Path):
    """It is one word in the file: what stands behind it would be lost."""
    keys.make_node(tmp_path / "St. Mary  ward 3.key")
    (named,) = public_keys.read(tmp_path / "St. Mary  ward 3.key.pub")
    assert named.name == "St.-Mary-ward-3"


def test_a_full_disk_leaves_no_half_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It would stand in the way of the next try, and look like a key."""

    class Full:
        def __init__(self, descriptor: int, _: str) -> None:
            os.close(descriptor)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None: ...

        def write(self, _: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(private_files, "open", Full, raising=False)
    with pytest.raises(UserError, match=r"cannot write .*north.key: No space left on device"):
        keys.make_node(tmp_path / "north.key")
    monkeypatch.undo()
    keys.make_node(tmp_path / "north.key")


def test_a_hub_whose_ca_key_was_put_away_gets_no_other(hub: Path):
    (hub / "ca.key").rename(hub.parent / "ca.key")
    with pytest.raises(UserError, match=r"ca.pem is there already; remove it first"):
        keys.make_server(hub, ["localhost"])
    assert not (hub / "ca.key").exists()


@pytest.mark.parametrize("end", [".pub", ".folder"])
def test_what_lies_beside_a_key_is_not_replaced(end: str, tmp_path: Path, capsys: Any):
    beside = tmp_path / f"north.key{end}"
    beside.write_text("of before")
    words = ["flower", "keys", "node", str(tmp_path / "north.key")]
    assert call([*words, "--folder", str(tmp_path / "north")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {beside} is there already; remove it first")
    assert beside.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [beside]


def test_a_folder_that_is_a_file_leaves_no_key(tmp_path: Path, capsys: Any):
    (tmp_path / "north").touch()
    words = ["flower", "keys", "node", str(tmp_path / "north.key")]
    assert call([*words, "--folder", str(tmp_path / "north")]) == 2
    assert capsys.readouterr().err == f"error: --folder {tmp_path / 'north'} is no folder\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "north"]


def test_a_keys_last_folder_that_cannot_be_read_is_told(tmp_path: Path):
    """Else a typing error in --folder would pass."""
    kept = tmp_path / "north.key.folder"
    kept.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"north.key.folder, which .* cannot be read \(no text\): "):
        key_folder.require(tmp_path / "north.key", tmp_path / "north")
    kept.unlink()
    key_folder.require(tmp_path / "north.key", tmp_path / "north")
    kept.mkdir()
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\): mend it, or remove"):
        key_folder.require(tmp_path / "north.key", tmp_path / "north")


def test_a_policy_that_stays_may_name_another_coordinator(tmp_path: Path, capsys: Any):
    keys.make_server(tmp_path / "hub", ["localhost"])
    words = ["flower", "keys", "node", str(tmp_path / "north.key")]
    words += ["--folder", str(tmp_path / "north"), "--ca", str(tmp_path / "hub" / "ca.pem")]
    assert call(words) == 0
    assert "compare that, too" in capsys.readouterr().out
    for file in tmp_path.glob("north.key*"):
        file.unlink()
    assert call(words) == 0
    told, policy = capsys.readouterr().out, tmp_path / "north" / "policy.toml"
    assert f"{policy} (it was there, and stays as it is) says what may run here" in told
    assert told.endswith(f": see that {policy} names it\n")


def test_a_key_that_cannot_be_opened_is_not_called_malformed(tmp_path: Path):
    """In a container it is often another user's."""
    (tmp_path / "north.key").mkdir()
    with pytest.raises(UserError, match=r"the key .*north.key cannot be read: Is a directory"):
        identity.load(tmp_path / "north.key", None)


@pytest.mark.parametrize("words", [["link", "--folder", "hub"], ["up"]])
def test_a_port_that_is_none_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.chdir(tmp_path)
    keys.make_server(tmp_path / "hub", ["localhost"])
    assert call(["flower", *words, "--port", "99999"]) == 2
    assert capsys.readouterr().err.startswith("error: --port is 99999; ports are 1 to 65535")


def test_a_key_has_one_digest_at_the_node_and_in_the_register(tmp_path: Path, capsys):
    """Two people compare them by telephone."""
    hub, key = tmp_path / "hub", tmp_path / "north.key"
    assert call(["flower", "keys", "server", str(hub)]) == 0
    assert "signing.key and secret to nobody" in capsys.readouterr().out
    ca = ["--folder", str(tmp_path / "north"), "--ca", str(hub / "ca.pem")]
    assert call(["flower", "keys", "node", str(key), *ca]) == 0
    told = capsys.readouterr().out
    assert f"send {key}.pub to the coordinator" in told
    assert keys.coordinator_digest(hub / "ca.pem") in told
    assert call(["flower", "register", str(hub), f"{key}.pub", "--client", "0"]) == 0
    digest = capsys.readouterr().out.split()[-1]
    assert f"its digest is {digest}: " in told


def test_a_connection_that_is_replaced_is_told_from_one_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(connection.FOLDER, str(tmp_path))
    here = connection.Connection("hub:9092", "/a/ca.pem", "/a/secret")
    assert not connection.differs("hub", here)
    connection.save("hub", here)
    assert not connection.differs("hub", here)
    assert connection.differs("hub", connection.Connection("hub:9093", "/a/ca.pem", "/a/secret"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(connection.FOLDER, str(tmp_path / "connections"))
    keys.make_server(tmp_path / "hub", ["localhost"])
    return tmp_path / "hub"


@pytest.mark.slow
def test_a_link_that_cannot_listen_writes_no_connection(hub: Path):
    """In a process of its own: a SuperLink takes over what its process writes to."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["flower", "link", "--folder", str(hub), "--name", "hub", "--host", "127.0.0.1"]
        asked = [sys.executable, "-m", "fedrl", *words, "--port", port]
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 2
    assert "cannot listen" in told.stderr
    assert "connection hub" not in told.stdout
    assert not (connection.folder() / "hub.toml").exists()


def test_the_name_of_another_folders_connection_is_not_taken(
    hub: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    said = []

    def served(*words: object) -> None:
        words[-1]()  # type: ignore[operator]
        said.append(words)

    monkeypatch.setattr("fedrl.engines.flower.superlink.serve", served)
    keys.make_server(tmp_path / "hub2", ["localhost"])
    assert call(["flower", "link", "--folder", str(hub), "--name", "hub"]) == 0
    before = (connection.folder() / "hub.toml").read_text()
    assert call(["flower", "link", "--folder", str(tmp_path / "hub2"), "--name", "hub"]) == 2
    told = capsys.readouterr().err
    assert f"--name hub is the connection of --folder {hub}: give this one another name" in told
    assert len(told.splitlines()) == 1
    assert (connection.folder() / "hub.toml").read_text() == before
    assert call(["flower", "link", "--folder", str(hub), "--name", "hub", "--port", "9095"]) == 0
    hub.rename(tmp_path / "moved")  # its connection leads nowhere
    assert call(["flower", "link", "--folder", str(tmp_path / "hub2"), "--name", "hub"]) == 0
    assert len(said) == 3


def test_a_federation_for_trying_out_takes_no_other_folders_connection(
    hub: Path, tmp_path: Path, capsys
):
    """While that is in use; of the name for trying out, one that nobody answers at is left from
    another day."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        here = connection.Connection(address, str(hub / "ca.pem"), str(hub / "secret"))
        connection.save("local", here)
        assert call(["flower", "up", "--folder", str(tmp_path / "up")]) == 2
    told = capsys.readouterr().err
    assert f"--name local is the connection of --folder {hub}: give this one another name" in told
    fedrl.flower.up(1, tmp_path / "up")  # nobody answers there any more
    before = connection.save("hub", here).read_text()
    assert call(["flower", "up", "--name", "hub", "--folder", str(tmp_path / "up")]) == 2
    assert f"--name hub is the connection of --folder {hub}: " in capsys.readouterr().err
    assert (connection.folder() / "hub.toml").read_text() == before
    assert not (tmp_path / "up").exists()
