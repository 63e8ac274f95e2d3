"""What `fedrl flower up` starts its nodes with."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedrl.core.types import UserError
from fedrl.engines.flower import child_processes
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
