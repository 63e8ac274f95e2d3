"""The program of a SuperNode: Flower's, with messages that pass through it piece by piece.

Flower's SuperNode fetches a whole message before it lets its executor have any of it, and holds all
of an answer while it sends it. Here each object is stored as it comes, where the executor takes it
(`object_store.py`), and few are on their way at a time. Who asks for an object that the SuperLink
does not have yet asks again soon, and not after a second, then two, then four.

Flower's loop ends with an error that it only logs, as of a SuperLink that fails while it is being
stopped, or with a second signal of its own (each thread that is refused sends it one), and leaves
its process behind, which then does nothing for ever. This one ends, and its node starts another.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flwr.supercore.constant import PULL_MAX_TIME
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode import fleet_http_connection
from flwr.supernode import start_client_internal as loop
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedrl.core import memory_arenas
from fedrl.engines.flower.adapter import HEARD, HOME_VARIABLE, transfer
from fedrl.engines.flower.adapter.object_store import SpooledObjectStore

HELD = 2**26
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
PULL, HEARTBEAT = "/v1/fleet/pull-messages", "/v1/fleet/send-node-heartbeat"


class Pulled:
    """In the place of a dict of all contents: each is fetched when it is taken out, in order.

    Nothing in it refers back to it, so that its threads end with it if a message is given up.
    """

    def __init__(self, object_ids: Sequence[str], pull_object_fn: Callable[[str], bytes]) -> None:
        self._ids = list(dict.fromkeys(object_ids))
        until = time.monotonic() + PULL_MAX_TIME
        fetch = partial(_patiently, pull_object_fn, until)
        self._contents: Iterator[bytes] = transfer.ahead(fetch, self._ids)

    def keys(self) -> list[str]:
        return self._ids

    def pop(self, object_id: str) -> bytes:
        return next(self._contents)


def _patiently(pull: Callable[[str], bytes], until: float, object_id: str) -> bytes:
    pause = FIRST_PAUSE
    while True:
        try:
            return pull(object_id)
        except ObjectUnavailableError:
            if time.monotonic() > until:
                raise ObjectPullError(object_id, "it never came") from None
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)


class SpooledFactory(ObjectStoreFactory):
    """Of the SuperNode's one store, in its own folder."""

    def __init__(self) -> None:
        super().__init__()
        self.store_instance = SpooledObjectStore(Path(os.environ[HOME_VARIABLE]) / "spool", HELD)


class HeardClient(FleetHttpClient):
    """Lets its node know when the SuperLink has answered last. Heartbeats do not count: they go on
    where nobody asks for messages any more."""

    def _unary_unary(self, *, path: str, **words: Any) -> Any:
        heard = Path(os.environ[HOME_VARIABLE]) / HEARD
        try:
            answer = super()._unary_unary(path=path, **words)
        except Exception:
            if path == PULL:
                heard.unlink(missing_ok=True)
            raise
        if path != HEARTBEAT:
            with contextlib.suppress(OSError):  # a full disk stops the node elsewhere
                heard.touch()
        return answer


def main() -> None:
    memory_arenas.limit()
    # By its name: its package has a function of the same.
    program = importlib.import_module("flwr.supernode.cli.flower_supernode")
    loop.pull_objects = Pulled  # type: ignore[assignment]
    loop.push_object_contents_from_iterable = _push  # type: ignore[assignment]
    fleet_http_connection.FleetHttpClient = HeardClient  # type: ignore[misc]
    program.ObjectStoreFactory = SpooledFactory  # type: ignore[attr-defined]
    try:
        program.flower_supernode()
    finally:
        error = sys.exc_info()[1]  # such as a second signal within the first
        if not isinstance(error, SystemExit):  # after one Flower's own thread sees to the end
            if error is not None:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # the thread of its executor's interface would keep it


def _push(
    contents: Iterator[tuple[str, bytes]], push_object_fn: Callable[[str, bytes], None]
) -> None:
    transfer.push_contents(contents, push_object_fn)
