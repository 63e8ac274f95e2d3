"""Many members of a federation in one process: Flower's connection and fedrl's messages, no worker.

Each has a registered key and a thread. It asks the SuperLink for messages, says its name, and
answers a job with what it was sent. Run as a program it is such members, until it is stopped.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness  # noqa: F401 - pins every library to one thread

import fedrl
from fedrl.core import serialization
from fedrl.engines.flower import audit_log, messages
from fedrl.engines.flower.adapter import records

SLEEP = 3.0
"""Of a SuperNode that has found nothing."""
PAUSE = 0.02
REGISTER_SECONDS = 300.0


def register(folder: Path, count: int) -> None:
    """Keys of so many clients, in the register of the SuperLink of this folder."""
    from fedrl.engines.flower.keys import make_node

    server = folder / "server"
    for number in range(count):
        make_node(folder / f"key-{number}")
        public = (folder / f"key-{number}.pub").read_bytes()
        (server / "nodes" / f"client-{number}.pub").write_bytes(public)
    until = time.monotonic() + REGISTER_SECONDS
    while sum(entry["event"] == "registered" for entry in audit_log.read(server)[0]) < count:
        if time.monotonic() > until:
            raise SystemExit(f"the SuperLink has not registered {count} keys in time")
        time.sleep(1.0)


class Members:
    """So many members in threads, each with Flower's own connection.

    `count` is how often they have asked for messages. With `answers` they are members of a run;
    without, nodes that have none.
    """

    def __init__(self, address: str, folder: Path, nodes: int, answers: bool) -> None:
        self.address, self.folder, self.nodes, self.answers = address, folder, nodes, answers
        self.over, self.count, self.connected = threading.Event(), 0, 0
        self._lock = threading.Lock()
        for number in range(nodes):
            threading.Thread(target=self._live, args=(number,), daemon=True).start()

    def settle(self) -> None:
        """Until all have asked once."""
        while self.connected < self.nodes:
            time.sleep(0.5)
        time.sleep(2 * SLEEP)

    def _live(self, number: int) -> None:
        """Whatever happens to its connection, a member comes back, as a SuperNode does."""
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key

        key: Any = load_ssh_private_key((self.folder / f"key-{number}").read_bytes(), None)
        ca = (self.folder / "server" / "ca.pem").read_bytes()
        time.sleep(SLEEP * number / self.nodes)  # spread over the time between two questions
        first = True
        while not self.over.is_set():
            with contextlib.suppress(Exception, SystemExit):
                self._ask(number, key, ca, first)
            first = False
            self.over.wait(SLEEP)

    def _ask(self, number: int, key: Any, ca: bytes, first: bool) -> None:
        from flwr.supernode.fleet_http_connection import http_request_response

        with http_request_response(self.address, False, ca, (key, key.public_key())) as connection:
            _, receive, send, _, _, pull, push, confirm = connection
            with self._lock:
                self.connected += first
            while not self.over.is_set():
                got = receive()
                with self._lock:
                    self.count += 1
                if got is None:
                    self.over.wait(SLEEP)
                elif self.answers:
                    _answer(number, got, send, pull, push, confirm)


def _answer(number: int, got: Any, send: Any, pull: Any, push: Any, confirm: Any) -> None:
    """The message's objects, in order, and the reply's."""
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
    )
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    message, tree = got
    run, name = message.metadata.run_id, message.metadata.message_id
    parts = dict.fromkeys(part.object_id for part in iterate_object_tree(tree))
    contents = {part: _pulled(partial(pull, run, part)) for part in parts}
    confirm(run, name)
    asked: Any = inflate_object_from_contents(tree.object_id, contents)
    asked.metadata.__dict__["_message_id"] = name
    reply = Message(_reply(number, asked.content), reply_to=asked)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    wanted, session = send(reply, get_object_tree(reply), 0.0)
    for part, made in get_all_nested_objects(reply).items():
        if part in wanted:
            push(run, session, part, made.deflate())


def _pulled(pull: Callable[[], bytes]) -> bytes:
    """A piece may still be on its way to the SuperLink."""
    from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError

    while True:
        try:
            return pull()
        except ObjectUnavailableError:
            time.sleep(PAUSE)


def _reply(number: int, content: records.Content) -> records.Content:
    text, pieces = records.opened(content)
    asked = messages.from_json(text, messages.Who, messages.Job)
    if isinstance(asked, messages.Who):
        name = messages.Name(asked.nonce, number, fedrl.__version__)
        return records.content(messages.to_json(name))
    heading = messages.Answer(asked.nonce, number, digest=serialization.checksum(pieces))
    return records.content(messages.to_json(heading), records.body(pieces))


def main() -> None:
    address, folder, count = sys.argv[1:]
    members = Members(address, Path(folder), int(count), answers=True)
    members.settle()
    print("settled", flush=True)
    sys.stdin.read()  # until who started it has gone


if __name__ == "__main__":
    main()
