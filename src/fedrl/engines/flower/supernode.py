"""`fedrl flower node`: a SuperNode and its executor, kept running until they are stopped.

A SuperNode ends when the SuperLink no longer knows it, after a restart of the SuperLink say; it is
then started again, with the same key and so as the same node.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fedrl.core.types import UserError
from fedrl.engines.flower import adapter, child_processes, node_executor
from fedrl.engines.flower.node import NodeClient, say

PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class SuperNode:
    """Where its SuperLink is, and how they know each other: a CA and a key, or plain text.

    `poll` are seconds between two questions for messages, up to Flower's own.
    """

    superlink: str
    ca: Path | None
    key: Path | None
    poll: float = adapter.SUPERNODE_POLL_SECONDS


def serve(node: SuperNode, client: NodeClient) -> None:
    """Until it is stopped by a signal."""
    try:
        client.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"--folder {client.folder}: {error.strerror}") from error
    with child_processes.ended_by_signals(), contextlib.closing(client):
        while True:
            _serve_once(node, client)
            time.sleep(PAUSE_SECONDS)


def _serve_once(node: SuperNode, client: NodeClient) -> None:
    port, secret = child_processes.free_port(), secrets.token_bytes(32)
    path = client.folder / "secret"
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(secret)
    process = _start(node, client, port, path)
    try:
        # Its executor's interface opens before it looks for the SuperLink.
        child_processes.wait_for_port(process, port)
        if process.poll() is None and not child_processes.listens(port):
            say(f"port {port} is somebody else's; the SuperNode is started again on another")
            return
        node_executor.serve(client, f"127.0.0.1:{port}", secret, lambda: process.poll() is None)
        ended = "is ended" if process.poll() is None else f"ended (exit code {process.returncode})"
        say(f"the SuperNode {ended}; it is started again")
    finally:
        child_processes.stop([process])


def _start(node: SuperNode, client: NodeClient, port: int, secret: Path) -> subprocess.Popen[bytes]:
    sooner = node.poll < adapter.SUPERNODE_POLL_SECONDS
    program = (adapter.POLL_SOONER.format(poll=node.poll) if sooner else "") + adapter.SUPERNODE
    words = ["-c", program, "--superlink", node.superlink]
    words += ["--isolation", "process", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--superexec-auth-secret-file", str(secret)]
    words += ["--node-config", f"client={client.number}"]
    words += ["--root-certificates", str(node.ca)] if node.ca else ["--insecure"]
    words += ["--auth-supernode-private-key", str(node.key)] if node.key else []
    return child_processes.start(
        words, client.folder / adapter.HOME, client.folder / "supernode.log"
    )
