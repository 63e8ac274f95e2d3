"""Another user of a member's machine, who takes the port on which its SuperNode is to listen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_nodes import Inline

from fedrl.engines.flower import child_processes, node_executor, supernode
from fedrl.engines.flower.supernode import SuperNode

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="needs Linux")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A listener is there before the SuperNode is; the tasks that were asked for of it."""
    asked: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(child_processes, "free_port", lambda: listener.getsockname()[1])
    waits = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(supernode, "_start", lambda *_: subprocess.Popen(waits))
    monkeypatch.setattr(node_executor, "serve", lambda client, address, *_: asked.append(address))
    return asked


def serve(folder: Path) -> None:
    node = SuperNode("127.0.0.1:1", None, None)
    supernode._serve_once(node, Inline(0, folder, lambda recipe: None))  # type: ignore[arg-type,return-value]


def test_a_port_of_another_user_is_asked_for_no_task(
    taken: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It could send a job and have the update: it is the SuperNode who checks who asks."""
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    serve(tmp_path)
    assert taken == []


def test_the_own_one_is(taken: list[str], tmp_path: Path):
    serve(tmp_path)
    assert len(taken) == 1


def test_a_listener_on_all_addresses_is_not_the_supernodes():
    """It takes what is sent to loopback as well."""
    with socket.create_server(("0.0.0.0", 0)) as wide:
        assert not child_processes.listens(wide.getsockname()[1])


def test_a_supernode_answers_nobody_without_a_token():
    """Its interface is open to every user of the machine; whoever has shown nothing is told that
    it lives, and no more."""
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.supernode.main import create_app
    from flwr.supernode.nodestate import NodeStateFactory
    from starlette.testclient import TestClient

    app = create_app(NodeStateFactory(ObjectStoreFactory()), b"s" * 32)
    client = TestClient(app, raise_server_exceptions=False)
    asked = [(way, path) for path, ways in app.openapi()["paths"].items() for way in ways]
    assert len(asked) > 10
    for way, path in asked:
        answer = client.request(way.upper(), path, headers={"content-type": PROTOBUF_MEDIA_TYPE})
        assert answer.status_code == (200 if path == "/health" else 401), path
