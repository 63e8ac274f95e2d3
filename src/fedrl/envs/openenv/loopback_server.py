"""An environment's own server on this machine, for as long as the process that needs it.

    python -m fedrl.envs.openenv.loopback_server package.module:app

prints the port that it listens on and serves the ASGI application with uvicorn, which every
environment package brings along. It ends when its standard input does: with its parent, however
that ends.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from fedrl.core.registry import Table, load
from fedrl.envs.openenv.session import ServerLost

if TYPE_CHECKING:
    import uvicorn

SERVERS = Table("environments", "world.serve", {})

SECONDS = 180.0
"""For the start: importing the package takes ten on a slow machine, a dataset more."""


class LoopbackServer:
    """`app` is `package.module:app` or `./file.py:app`."""

    def __init__(self, app: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, app],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self.url = f"http://127.0.0.1:{self._port()}"

    def _port(self) -> int:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if ready.select(SECONDS) else b""
        if not line.strip().isdigit():
            self.close()
            raise ServerLost("of world.serve did not start")
        return int(line)

    def close(self) -> None:
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def main(app: str) -> None:
    import uvicorn

    with open(os.dup(1), "w") as parent:  # what the environment prints is not for the parent
        os.dup2(2, 1)
        found = load(SERVERS.find(app), SERVERS.key, app)
        config = uvicorn.Config(found, host="127.0.0.1", port=0, log_level="critical")
        _serve(uvicorn.Server(config), parent)


def _serve(server: uvicorn.Server, parent: TextIO) -> None:
    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    def tell_port() -> None:
        while not server.started:
            threading.Event().wait(0.02)
        print(server.servers[0].sockets[0].getsockname()[1], file=parent, flush=True)

    threading.Thread(target=end_with_parent, daemon=True).start()
    threading.Thread(target=tell_port, daemon=True).start()
    server.run()


if __name__ == "__main__":
    main(sys.argv[1])
