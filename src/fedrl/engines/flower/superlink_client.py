"""The driver's side of a SuperLink: start a run, send and fetch messages, with our own polling.

A SuperLink hands the work of its ServerApps out to executors. The driver is one: it submits the app
that comes with fedrl and takes the task that this makes, so that the round loop stays in the
driver's process, beside its checkpoints. Any trouble with the connection, or a SuperLink that was
restarted and knows the run no more, is `Lost`: the engine then opens a new run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message, RecordDict
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    GetNodesRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPushError,
    inflate_object_from_contents,
)
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedrl.core.types import UserError
from fedrl.engines.flower.adapter import app, records
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.driver_auth import Signing

HEARTBEAT_SECONDS = 10.0
"""A SuperLink gives a run up when it has heard nothing for 60 s."""
ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
ME = "fedrl"
OBJECTS = 64
SMALLEST_PIECE = 2**16
"""Bytes. An answer has a few objects beside its pieces, and a few more for each."""


def signing(secret: bytes) -> SuperExecAuthHttpInterceptor:
    """Signs the one request that only executors with the secret may make."""
    return SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE)


class Lost(Exception):
    """The SuperLink does not answer, or no longer knows this run; `status` if it said so."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Outgoing(NamedTuple):
    node: int
    content: RecordDict
    seconds: float  # that it may wait at the SuperLink


class Arrived(NamedTuple):
    """The answer to a message: its content, or why there is none."""

    message: str
    node: int
    content: RecordDict | None
    error: str


@dataclass
class _Arriving:
    """An answer whose objects are being fetched: it may still be on its way to the SuperLink."""

    asked: str
    node: int
    missing: list[str]
    contents: dict[str, bytes] = field(default_factory=dict)
    bytes: int = 0


class Link:
    """One run at a SuperLink, from `open` to `close`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.bytes_received = 0
        self._arriving: dict[str, _Arriving] = {}
        self._forgotten: set[str] = set()
        self._keys: dict[int, bytes] = {}  # of nodes
        self._over = threading.Event()

    def open(self) -> None:
        with _lost(), contextlib.ExitStack() as stack:
            control = self._to(ControlHttpClient, [])
            stack.callback(control.close)
            request = StartRunRequest(fab=fab_to_proto(app.build()), federation=NOOP_FEDERATION_ID)
            token = self._acquire(control.StartRun(request).run_id)
            self._client = self._to(RuntimeHttpClient, [RuntimeTokenHttpInterceptor(token)])
            given = self._client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id = given.task_id
            TaskIdentity.run_id = given.run.run_id
            TaskIdentity.node_id = given.context.node_id
            self._run = given.run.run_id
            self._grid = HttpGrid(self.connection.address, token=token)
            self._grid.set_run(run_from_proto(given.run))
            # Its own client would retry for ever, and end this process when a token is refused.
            self._grid._client = self._client
        threading.Thread(target=self._beat, daemon=True).start()

    def _acquire(self, run: int) -> str:
        """The token of our run's task. A task left behind by a driver that died is finished."""
        secret = self.connection.read_secret()
        signed = [signing(secret)] if secret else []
        client = self._to(RuntimeHttpClient, signed)
        with contextlib.closing(client):
            while True:
                request = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
                given = client.AcquireTask(request)
                if not given.token:
                    raise Lost("the SuperLink gave the run to another executor")
                if given.task.run_id == run:
                    return str(given.token)
                stale = self._to(RuntimeHttpClient, [RuntimeTokenHttpInterceptor(given.token)])
                with contextlib.closing(stale):
                    stale.PushTaskOutput(
                        PushTaskOutputRequest(sub_status="failed", details="its driver is gone")
                    )

    def _to(self, client: Any, interceptors: Sequence[Any]) -> Any:
        secret = self.connection.read_secret()
        return client.from_server_address(
            self.connection.address,
            self.connection.insecure,
            self.connection.read_ca(),
            [
                RuntimeVersionHttpInterceptor(component_name=ME),
                *interceptors,
                *([Signing(secret)] if secret else []),
            ],
        )

    def _beat(self) -> None:
        """Signs of life, from a thread: a round may take long. Trouble shows in the next call."""
        client, over = self._client, self._over
        while not over.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())

    def nodes(self) -> set[int]:
        with _lost():
            found = self._client.GetNodes(GetNodesRequest()).nodes
        self._keys = {node.node_id: node.public_key for node in found}
        return set(self._keys)

    def key_of(self, node: int) -> ec.EllipticCurvePublicKey | None:
        """The long-term key by which the SuperLink knows it."""
        data = self._keys.get(node)
        return bytes_to_public_key(data) if data else None

    def push(self, messages: Sequence[Outgoing]) -> list[str]:
        """The messages' ids, empty for those that the SuperLink does not take."""
        made = [Message(m.content, m.node, "query", ttl=m.seconds) for m in messages]
        with _lost():
            numbers = list(self._grid.push_messages(made))
        # Where a request is refused as a whole there is not even a number for each.
        return [str(number or "") for number in numbers or [""] * len(made)]

    def pull(self, messages: Collection[str], limit: int) -> list[Arrived]:
        """Answers to these that are here, of at most `limit` bytes; never waits for one."""
        here = []
        with _lost():
            # A SuperLink tells of an answer once, perhaps before all of it is there.
            wanted = set(messages) - {arriving.asked for arriving in self._arriving.values()}
            if wanted or self._forgotten:
                request = PullAppMessagesRequest(message_ids=wanted | self._forgotten)
                found = self._client.PullMessages(request)
                for answer, tree in zip(found.messages_list, found.message_object_trees):
                    about = answer.metadata
                    if about.reply_to_message_id in self._forgotten:
                        self._forgotten.discard(about.reply_to_message_id)
                        self._drop(about.message_id)
                        continue
                    ids = dict.fromkeys(part.object_id for part in iterate_object_tree(tree))
                    self._arriving[about.message_id] = _Arriving(
                        about.reply_to_message_id, about.src_node_id, list(ids)
                    )
            for number, arriving in list(self._arriving.items()):
                if arriving.asked not in messages:
                    continue
                done = self._fetch(number, arriving, limit)
                if done is not None:
                    del self._arriving[number]
                    self._drop(number)
                    here.append(done)
        return here

    def _drop(self, number: str) -> None:
        """Have the SuperLink delete an answer, all of which is here or wanted by nobody."""
        self._client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self._grid.node, run_id=self._run, message_object_id=number
            )
        )

    def _fetch(self, number: str, arriving: _Arriving, limit: int) -> Arrived | None:
        """One object after the other: what is too large is noticed before it is all here."""
        if len(arriving.missing) > OBJECTS + limit // SMALLEST_PIECE:  # each is a request
            return Arrived(arriving.asked, arriving.node, None, "its answer has too many parts")
        while arriving.missing:
            wanted = arriving.missing[0]
            found = self._client.PullObject(
                PullObjectRequest(node=self._grid.node, run_id=self._run, object_id=wanted)
            )
            if not found.object_found:
                return Arrived(arriving.asked, arriving.node, None, "its answer was cut off")
            if not found.object_available:
                return None
            arriving.contents[wanted] = found.object_content
            arriving.bytes += len(found.object_content)
            arriving.missing.pop(0)
            if arriving.bytes > limit:
                return Arrived(arriving.asked, arriving.node, None, _too_large(limit))
        self.bytes_received += arriving.bytes
        try:
            records.check(arriving.contents, limit)
            message = inflate_object_from_contents(number, arriving.contents)
        except records.Damaged as damage:
            why = f"its answer is malformed: {damage}"
            return Arrived(arriving.asked, arriving.node, None, why)
        except Exception:  # noqa: BLE001 - another machine's bytes may be wrong in any way
            message = None
        if not isinstance(message, Message):
            return Arrived(arriving.asked, arriving.node, None, "its answer is malformed")
        # Flower carries equal pieces once: a small message could name one of them a million times.
        if message.has_content() and _size(message.content) > limit:
            return Arrived(arriving.asked, arriving.node, None, _too_large(limit))
        if message.has_error():
            # Only the code: the text may quote what a client holds.
            error = f"Flower reports error {message.error.code} ({_meaning(message.error.code)})"
            return Arrived(arriving.asked, arriving.node, None, error)
        return Arrived(arriving.asked, arriving.node, message.content, "")

    def forget(self, messages: Collection[str]) -> None:
        """Answers that nobody waits for any more: when they come, the SuperLink drops them."""
        here = {n: a.asked for n, a in self._arriving.items() if a.asked in messages}
        self._forgotten |= set(messages) - set(here.values())
        for number in here:
            del self._arriving[number]
            with contextlib.suppress(Lost), _lost():  # a SuperLink that is gone has forgotten it
                self._drop(number)

    def close(self, finished: bool) -> None:
        self._over.set()
        with contextlib.suppress(httpx.HTTPError, RuntimeError, AttributeError):
            status = "completed" if finished else "stopped"
            self._client.PushTaskOutput(PushTaskOutputRequest(sub_status=status))
            self._client.close()


def _too_large(limit: int) -> str:
    return f"its answer is larger than the {limit:,} bytes that its method may send"


def _size(content: RecordDict) -> int:
    """Bytes of its arrays, one by one."""
    return sum(len(a.data) for record in content.array_records.values() for a in record.values())


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise Lost(f"the SuperLink answered {status}", status) from error
    except (httpx.HTTPError, ObjectPushError, OSError, RuntimeError) as error:
        raise Lost(f"the SuperLink cannot be reached ({type(error).__name__})") from error


def _meaning(code: int) -> str:
    from flwr.common.constant import ErrorCode

    names = {value: name for name, value in vars(ErrorCode).items() if name.isupper()}
    return names.get(code, "unknown").replace("_", " ").lower()


def wait_for(connection: Connection, seconds: float) -> Link:
    """A run at the SuperLink, as soon as it answers; `Lost` after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        link = Link(connection)
        try:
            link.open()
            return link
        except Lost as lost:
            link.close(finished=False)
            if lost.status in (401, 403):
                raise UserError(
                    f"the SuperLink at {connection.address} refuses this driver: run it on the "
                    "SuperLink's machine or name its address (fedrl flower link --driver), with "
                    "the SuperLink's own file secret"
                ) from lost
            if "certificate" in str(lost.__cause__).lower():
                raise UserError(
                    f"the SuperLink at {connection.address} has a certificate that "
                    f"{connection.ca or 'a plain-text connection'} does not vouch for"
                ) from lost
            if time.monotonic() >= until:
                raise
            time.sleep(1.0)
