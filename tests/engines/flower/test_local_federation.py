"""What `fedrl flower up` starts its nodes with."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedrl.core.types import UserError
from fedrl.engines.flower import child_processes, connection, keys, running_lock
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.local_federation import LocalFederation


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr(child_processes, "start", lambda words, *_: found.append(list(words)))
    return found


def test_every_node_gets_the_folder_of_its_own_client(tmp_path: Path, started: list[list[str]]):
    """In the order that a simulation deals them in, and no node gets another's."""
    for name in ("north", "south"):
        (tmp_path / "data" / name).mkdir(parents=True)
    federation = LocalFederation(
        tmp_path / "fed", 2, 9999, data=tmp_path / "data", own=["--algorithm.model", "m"]
    )
    for client in range(2):
        federation.start_node(client)
    for words, name in zip(started, ("north", "south"), strict=True):
        assert words[words.index("--data") + 1] == str((tmp_path / "data" / name).resolve())
        assert words[-3:] == ["--", "--algorithm.model", "m"]


def test_without_data_no_folder_is_named(tmp_path: Path, started: list[list[str]]):
    LocalFederation(tmp_path / "fed", 1, 9999).start_node(0)
    assert "--data" not in started[0]


def test_fewer_folders_than_clients_is_one_line(tmp_path: Path):
    (tmp_path / "data" / "north").mkdir(parents=True)
    with pytest.raises(UserError, match="data"):
        LocalFederation(tmp_path / "fed", 3, 9999, data=tmp_path / "data").start_node(2)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_that_runs_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(connection.FOLDER, str(tmp_path / "connections"))
    monkeypatch.setattr(running_lock, "PATIENCE_SECONDS", 0.1)
    keys.make_server(tmp_path / "fed" / "server", ["localhost"])
    connection.save("local", Connection("127.0.0.1:9"))
    with running_lock.alone(tmp_path / "fed" / "server", ""):
        before = contents(tmp_path)
        refused = pytest.raises(UserError, match="fed: a federation runs in it; stop it, or")
        with refused, LocalFederation(tmp_path / "fed", 4):
            raise AssertionError
        assert contents(tmp_path) == before


def test_a_port_that_is_taken_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(connection.FOLDER, str(tmp_path / "connections"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = pytest.raises(UserError, match=f"cannot listen on 127.0.0.1 port {port}: Address")
        with refused, LocalFederation(tmp_path / "fed", 1, port):
            raise AssertionError
    assert not list(tmp_path.iterdir())


def test_a_superlink_that_does_not_start_has_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(connection.FOLDER, str(tmp_path / "connections"))
    refused = pytest.raises(UserError, match=r"did not start; .*/fed/link.log says why")
    with refused, LocalFederation(tmp_path / "fed", 1, link=("-c", "")):
        raise AssertionError
    assert not (tmp_path / "connections").exists()
