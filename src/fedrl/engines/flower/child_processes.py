"""Child processes that end with their parent, also when it is killed.

A SuperNode without its executor would keep a message for ever; a SuperLink that nobody stops keeps
its port.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrl.core.child_process import python
from fedrl.core.child_process import stop as stop
from fedrl.engines.flower.adapter import HOME_VARIABLE, OFFLINE

TABLE = Path("/proc/net/tcp")
"""Sockets by address, with the state (0A: it listens) and the owner's number."""


def start(words: Sequence[str], home: Path, log: Path | None = None) -> subprocess.Popen[bytes]:
    """`python -P words…`; Flower keeps its files under `home`.

    Whatever lies in the current folder, an `org.py` say, is imported neither by it nor by its own
    children.
    """
    environment = os.environ | OFFLINE | {HOME_VARIABLE: str(home), "PYTHONSAFEPATH": "1"}
    with contextlib.ExitStack() as stack:
        out = None if log is None else stack.enter_context(log.open("ab"))
        return subprocess.Popen(
            [*python(), "-P", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(process: subprocess.Popen[bytes], port: int, seconds: float = math.inf) -> bool:
    """Whether something answers there before the process ends, or the time."""
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return True
        except OSError:
            time.sleep(0.2)
    return False


def listens(port: int) -> bool:
    """Whether a process of this user listens on that port of loopback, as far as Linux tells.

    Between a look for a free port and a child that takes it are seconds, in which every user of the
    machine could take it, and then say what a SuperNode says.
    """
    if not TABLE.is_file():
        return True
    address = int.from_bytes(socket.inet_aton("127.0.0.1"), sys.byteorder)
    rows = [line.split() for line in TABLE.read_text().splitlines()[1:]]
    owners = {row[7] for row in rows if row[1] == f"{address:08X}:{port:04X}" and row[3] == "0A"}
    return owners == {str(os.getuid())}


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM as Ctrl-C: both let `finally` clauses stop the children."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
