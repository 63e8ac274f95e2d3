"""`fedrl flower node`: a SuperNode and its executor, kept running until they are stopped.

A SuperNode ends when the SuperLink no longer knows it, after a restart of the SuperLink say; it is
then started again, with the same key and so as the same node. If its owner has put another key in
the place of its own (`registered.py`), that is done in the next moment in which nothing is under
way.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import subprocess
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import fedrl
from fedrl.core import memory_arenas
from fedrl.core.private_files import StateError
from fedrl.core.types import UserError
from fedrl.engines.flower import adapter, child_processes, node_executor
from fedrl.engines.flower.keys import key_digest
from fedrl.engines.flower.node import NodeClient
from fedrl.engines.flower.node_story import LATER_SECONDS, Story, telling
from fedrl.engines.flower.own_check import Joining
from fedrl.engines.flower.owner_log import in_words, say
from fedrl.engines.flower.policy import in_toml
from fedrl.privacy.secure_aggregation import identity
from fedrl.privacy.secure_aggregation.identity import Identity

PAUSE_SECONDS = 2.0
LOG = "supernode.log"


@dataclass(frozen=True)
class SuperNode:
    """Where its SuperLink is, and how they know each other: a CA and a key, or plain text.

    `poll` are the seconds that its process sleeps at most when it finds nothing, up to Flower's.
    Questions for messages wait at the SuperLink (`superlink_waiting.py`), so that it seldom does.
    """

    superlink: str
    ca: Path | None
    key: Path | None
    poll: float = adapter.SUPERNODE_POLL_SECONDS


def serve(node: SuperNode, client: NodeClient) -> None:
    """Until it is stopped by a signal."""
    memory_arenas.limit()
    try:
        client.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"--folder {client.folder}: {error.strerror}") from error
    joining = Joining(node.superlink, node.ca, node.key, client=client.number)
    story = Story(joining, client.number, client.folder, partial(_unheard, client.folder))
    client.begins, begin = story.begins, partial(_begin, client)
    with child_processes.ended_by_signals(), contextlib.closing(client), telling(story, begin):
        pause = PAUSE_SECONDS
        while True:
            _serve_once(node, client, story)
            # What keeps it out is known, and each try is a line in the coordinator's log.
            pause = min(2 * pause, LATER_SECONDS) if story.patient else PAUSE_SECONDS
            _wait(pause, story)


def _wait(pause: float, story: Story) -> None:
    """So long, or until what kept the node out is gone."""
    end, troubled = time.monotonic() + pause, bool(story.trouble)
    while (rest := end - time.monotonic()) > 0 and bool(story.trouble) == troubled:
        time.sleep(min(rest, PAUSE_SECONDS))


def _unheard(folder: Path) -> float:
    """Seconds since the SuperLink has answered the SuperNode."""
    try:
        return time.time() - (folder / adapter.HOME / adapter.HEARD).stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _begin(client: NodeClient) -> None:
    """By which policy, for whom: in the node's logs, before anything is asked of it."""
    audit, peers = client.audit, client.identity.peers
    if audit is None:
        return
    try:
        audit.started(
            fedrl.__version__, None if peers is None else len(peers), _digest(client.identity)
        )
        policy = client.rules()
    except StateError as error:
        raise UserError(
            f"--folder {client.folder}: {error}; `fedrl flower audit {client.folder}` shows it, "
            "and moved away with audit.head a new one begins"
        ) from error
    except OSError as error:
        raise UserError(f"--folder {client.folder}: {in_words(error)}") from error
    if policy.coordinators and audit.coordinator not in policy.coordinators:
        raise UserError(
            f"coordinators of the policy have not {audit.coordinator or 'one without a CA'}, which "
            "this node is started for: is this its ca.pem?"
        )
    said = in_toml(policy.said()) or "defaults"
    say(f"coordinator {audit.coordinator or '(none: --insecure)'}; policy: {said}")


def _serve_once(node: SuperNode, client: NodeClient, story: Story | None = None) -> None:
    key = _contents(node.key)
    if node.key is not None and not key:  # being replaced: what comes next would look changed
        say(f"{node.key} cannot be read; the SuperNode is started when it can")
        return
    port, secret = child_processes.free_port(), secrets.token_bytes(32)
    (client.folder / adapter.HOME / adapter.HEARD).unlink(missing_ok=True)
    path = client.folder / "secret"
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(secret)
    client.identity = _own(node, client.identity)
    if client.audit is not None:
        client.audit.keyed(_digest(client.identity))
    process = _start(node, client, port, path)
    try:
        # Its executor's interface opens before it looks for the SuperLink.
        child_processes.wait_for_port(process, port)
        if process.poll() is None and not child_processes.listens(port):
            say(f"port {port} is somebody else's; the SuperNode is started again on another")
            return
        node_executor.serve(
            client,
            f"127.0.0.1:{port}",
            secret,
            lambda: process.poll() is None,
            lambda: _contents(node.key) != key,
            story.told(client.answer) if story else None,
            story.aside if story else say,
        )
        if story and process.poll() and _turned_away(client):
            story.turned_away()
        ended = "is ended" if process.poll() is None else f"ended (exit code {process.returncode})"
        (story.aside if story else say)(f"the SuperNode {ended}; it is started again")
    finally:
        child_processes.stop([process])


def _turned_away(client: NodeClient) -> bool:
    """By the last words of its SuperNode."""
    return adapter.TURNED_AWAY in _contents(client.folder / LOG)[-1000:]


def _contents(path: Path | None) -> bytes:
    try:
        return b"" if path is None else path.read_bytes()
    except OSError:  # being replaced
        return b""


def _own(node: SuperNode, known: Identity) -> Identity:
    """The key by which the SuperLink will know it is that with which it signs in secure sums."""
    try:
        return replace(known, key=identity.load(node.key, None).key)
    except UserError as error:
        say(str(error))
        return known


def _digest(own: Identity) -> str:
    return "" if own.key is None else key_digest(own.key.public_key())


def _start(node: SuperNode, client: NodeClient, port: int, secret: Path) -> subprocess.Popen[bytes]:
    sooner = node.poll < adapter.SUPERNODE_POLL_SECONDS
    program = (adapter.POLL_SOONER.format(poll=node.poll) if sooner else "") + adapter.SUPERNODE
    words = ["-c", program, "--superlink", node.superlink]
    words += ["--isolation", "process", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--superexec-auth-secret-file", str(secret)]
    words += ["--node-config", f"client={client.number}"]
    words += ["--root-certificates", str(node.ca)] if node.ca else ["--insecure"]
    words += ["--auth-supernode-private-key", str(node.key)] if node.key else []
    return child_processes.start(words, client.folder / adapter.HOME, client.folder / LOG)
