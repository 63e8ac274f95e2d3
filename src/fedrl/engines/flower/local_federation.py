"""A whole federation on one machine: what `docs/deploy.md` does on several, in one command."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from fedrl.core.types import UserError
from fedrl.engines.flower import (
    child_processes,
    connection,
    keys,
    policy,
    running_lock,
    superlink_listener,
)
from fedrl.engines.flower.adapter import HOME
from fedrl.engines.flower.owner_log import say
from fedrl.partition import OwnFolders

SERVER = "server"
"""The coordinator's folder, in that of the whole."""
START_SECONDS = 60.0
POLL_SECONDS = 0.5
"""Here nobody's network is in between, and a try should not take long."""


class LocalFederation:
    """A SuperLink and a node per client, from `__enter__` to `__exit__`.

    `program` is what a node runs: words for Python, before those of `fedrl flower node`; `link` is
    the same for the SuperLink. With
    `peers` nodes know each other's keys, and only take part in secure sums. What nodes take from
    recipes is `allowed`, and `own` are settings of theirs; `data` has a folder for each of them, as
    in a simulation of clients who bring their own.
    """

    def __init__(
        self,
        folder: Path,
        clients: int,
        port: int = 0,
        name: str = "local",
        insecure: bool = False,
        program: Sequence[str] = ("-m", "fedrl", "flower", "node"),
        poll: float = POLL_SECONDS,
        regroup: bool = False,
        peers: bool = False,
        allowed: Sequence[str] = (),
        packages: Sequence[str] = (),
        own: Sequence[str] = (),
        data: Path | None = None,
        link: Sequence[str] = ("-m", "fedrl", "flower", "link"),
    ) -> None:
        self.folder = folder
        self.data = None if data is None else OwnFolders(data.resolve(), clients)
        self.insecure = insecure
        self.name = name
        self.port = port or child_processes.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.link: subprocess.Popen[bytes] | None = None
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.clients = clients
        self.program, self.link_program = list(program), list(link)
        self.poll = poll
        self.regroup = regroup
        self.peers = peers
        self.rules = [word for key in allowed for word in ("--allow", key)]
        self.rules += [word for name in packages for word in ("--allow-package", name)]
        self.rules += ["--", *own] if own else []

    def __enter__(self) -> LocalFederation:
        server = self.folder / SERVER
        self._require_free(server)
        if not (server / "secret").is_file():
            keys.make_server(server, ["localhost", "127.0.0.1"])
        for client in range(self.clients):
            key = self.folder / f"node-{client}" / "key"
            if not key.is_file():
                keys.make_node(key, f"node-{client}")
            policy.write_template(key.parent)
            public = key.with_name("key.pub").read_bytes()
            (server / "nodes" / f"client-{client}.pub").write_bytes(public)
        self._stack = child_processes.ended_by_signals()
        self._stack.__enter__()
        try:
            self.start_link()
            connection.save(self.name, self._connection(server))
            for client in range(self.clients):
                self.start_node(client)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        child_processes.stop([*self.nodes.values(), *([self.link] if self.link else [])])
        self._stack.__exit__(None, None, None)

    def _require_free(self, server: Path) -> None:
        """`UserError` before anything is changed: a federation that runs would notice."""
        if (server / "secret").is_file():
            taken = f"--folder {self.folder}: a federation runs in it; stop it, or name another"
            with running_lock.alone(server, taken, running_lock.PATIENCE_SECONDS, say):
                pass
        superlink_listener.require_free("127.0.0.1", self.port)

    def _connection(self, server: Path) -> connection.Connection:
        ca = "" if self.insecure else str(server / "ca.pem")
        secret, nodes = str(server / "secret"), str(server / "nodes")
        return connection.Connection(self.address, ca, secret, nodes)

    def start_link(self) -> None:
        words = [*self.link_program, "--folder", str(self.folder / SERVER)]
        words += ["--host", "127.0.0.1", "--port", str(self.port)]
        words += ["--insecure"] if self.insecure else []
        log = self.folder / "link.log"
        self.link = child_processes.start(words, self.folder / SERVER / HOME, log)
        if not child_processes.wait_for_port(self.link, self.port, START_SECONDS):
            raise UserError(f"the SuperLink did not start; {log} says why")

    def start_node(self, client: int) -> None:
        folder = self.folder / f"node-{client}"
        words = [*self.program, "--client", str(client)]
        words += ["--superlink", self.address, "--folder", str(folder), "--poll", str(self.poll)]
        words += ["--regroup"] if self.regroup else []
        words += ["--data", str(self.data.of(client))] if self.data is not None else []
        if self.insecure:
            words += ["--insecure"]
        else:
            server = self.folder / SERVER
            words += ["--ca", str(server / "ca.pem"), "--key", str(folder / "key")]
            words += ["--peers", str(server / "nodes")] if self.peers else []
        words += self.rules
        self.nodes[client] = child_processes.start(words, folder / HOME, folder / "node.log")

    def running(self) -> bool:
        return self.link is not None and self.link.poll() is None
