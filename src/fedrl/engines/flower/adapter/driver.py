"""A run at a SuperLink: the driver is its ServerApp, and one of Flower's executors.

A SuperLink hands the work of its ServerApps out to executors. The driver is one: it submits the app
that comes with fedrl and takes the task that this makes. Each method is one request; polling, the
inbox and its limits are `superlink_client.py`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import fab_to_proto, message_to_proto, run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    GetNodesRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key
from flwr.supercore.protobuf.client import (
    ProtobufCall,
    ProtobufClient,
    ProtobufClientInterceptor,
    ProtobufRequestContext,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedrl.engines.flower import driver_auth
from fedrl.engines.flower.adapter import COMPONENT, app, records, transfer
from fedrl.engines.flower.connection import Connection, Lost

ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
Api = TypeVar("Api", bound=ProtobufClient)


def executor_signature(secret: bytes) -> SuperExecAuthHttpInterceptor:
    """Signs the one request that only executors with the secret may make."""
    return SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE)


class DriverSignature:
    """Signs every request, for the guard of our SuperLink."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        request = context.request
        signed = driver_auth.sign(self.secret, request.url.path, request.content)
        request.headers[driver_auth.HEADER] = signed
        return call_next(context)


def connect(
    api: type[Api], connection: Connection, *interceptors: ProtobufClientInterceptor
) -> Api:
    """One of the SuperLink's APIs, for somebody who knows its secret, if it has one."""
    secret = connection.read_secret()
    signature = [DriverSignature(secret)] if secret else []
    return api.from_server_address(
        connection.address,
        connection.insecure,
        connection.read_ca(),
        [RuntimeVersionHttpInterceptor(component_name=COMPONENT), *interceptors, *signature],
    )


@contextlib.contextmanager
def reached() -> Iterator[None]:
    """Whatever goes wrong with the connection is `Lost`."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise Lost(f"the SuperLink answered {status}", status) from error
    except (httpx.HTTPError, ObjectPushError, OSError, RuntimeError) as error:
        raise Lost(f"the SuperLink cannot be reached ({type(error).__name__})") from error


class Announced(NamedTuple):
    """An answer that the SuperLink tells of: to which message, from which node, in which parts."""

    number: str
    asked: str
    node: int
    parts: list[str]


class Grid(HttpGrid):
    """Sends messages whose objects are made when it is their turn."""

    def _try_push_messages(self, run_id: int, messages: Iterable[Message]) -> list[str]:
        made = list(messages)
        objects: dict[str, InflatableObject] = {}
        for message in made:
            objects |= get_all_nested_objects(message)
        announced = self._runtime_client.PushMessages(
            PushAppMessagesRequest(
                messages_list=[message_to_proto(remove_content_from_message(m)) for m in made],
                message_object_trees=[get_object_tree(m) for m in made],
            )
        )
        put = make_push_object_fn_protobuf(
            self._runtime_client.PushObject, self.node, run_id, announced.session_id
        )
        transfer.push(objects, announced.objects_to_push, put)
        return list(announced.message_ids)


@dataclass
class Run:
    """One run, from `start` to `finish`."""

    client: RuntimeHttpClient
    grid: Grid
    number: int

    @classmethod
    def start(cls, connection: Connection) -> Run:
        with contextlib.closing(connect(ControlHttpClient, connection)) as control:
            request = StartRunRequest(fab=fab_to_proto(app.build()), federation=NOOP_FEDERATION_ID)
            token = _acquire(connection, control.StartRun(request).run_id)
            client = connect(RuntimeHttpClient, connection, RuntimeTokenHttpInterceptor(token))
            try:
                given = client.PullTaskInput(PullTaskInputRequest())
            except BaseException:
                _finish(client, completed=False)
                raise
            TaskIdentity.task_id = given.task_id
            TaskIdentity.run_id = given.run.run_id
            TaskIdentity.node_id = given.context.node_id
            grid = Grid(connection.address, token=token)
            grid.set_run(run_from_proto(given.run))
            # Its own client would retry for ever, and end this process when a token is refused.
            grid._client = client
            return cls(client, grid, given.run.run_id)

    def heartbeat(self) -> None:
        self.client.SendTaskHeartbeat(SendTaskHeartbeatRequest())

    def nodes(self) -> dict[int, bytes]:
        """Public keys of the nodes that are connected."""
        nodes = self.client.GetNodes(GetNodesRequest()).nodes
        return {node.node_id: node.public_key for node in nodes}

    def push(self, outgoing: Sequence[tuple[int, RecordDict, float]]) -> list[str]:
        """Ids of messages (to whom, what, for how many seconds); empty for one it does not take."""
        made = [Message(content, node, "query", ttl=ttl) for node, content, ttl in outgoing]
        numbers = list(self.grid.push_messages(made))
        # Where a request is refused as a whole there is not even a number for each.
        return [str(number or "") for number in numbers or [""] * len(made)]

    def answers(self, messages: Collection[str]) -> list[Announced]:
        """To these messages. A SuperLink tells of one once, perhaps before all of it is there."""
        pulled = self.client.PullMessages(PullAppMessagesRequest(message_ids=messages))
        answers = []
        for answer, tree in zip(pulled.messages_list, pulled.message_object_trees):
            about = answer.metadata
            parts = dict.fromkeys(part.object_id for part in iterate_object_tree(tree))
            answers.append(
                Announced(
                    about.message_id, about.reply_to_message_id, about.src_node_id, list(parts)
                )
            )
        return answers

    def part(self, name: str) -> bytes | None:
        """One part of an answer; None while it is on its way to the SuperLink."""
        pulled = self.client.PullObject(
            PullObjectRequest(node=self.grid.node, run_id=self.number, object_id=name)
        )
        if not pulled.object_found:
            raise records.Unusable("its answer was cut off")
        return pulled.object_content if pulled.object_available else None

    def drop(self, answer: str) -> None:
        """Have the SuperLink delete an answer, all of which is here or wanted by nobody."""
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self.grid.node, run_id=self.number, message_object_id=answer
            )
        )

    def finish(self, completed: bool) -> None:
        _finish(self.client, completed)


def _finish(client: RuntimeHttpClient, completed: bool) -> None:
    status = "completed" if completed else "stopped"
    with contextlib.suppress(httpx.HTTPError, RuntimeError):
        client.PushTaskOutput(PushTaskOutputRequest(sub_status=status))
        client.close()


def public_key(data: bytes) -> ec.EllipticCurvePublicKey:
    """A node's, as `Run.nodes` has it."""
    return bytes_to_public_key(data)


def _acquire(connection: Connection, run: int) -> str:
    """The token of our run's task. A task left behind by a driver that died is finished."""
    secret = connection.read_secret()
    signature = [executor_signature(secret)] if secret else []
    with contextlib.closing(connect(RuntimeHttpClient, connection, *signature)) as client:
        while True:
            request = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
            given = client.AcquireTask(request)
            if not given.token:
                raise Lost("the SuperLink gave the run to another executor")
            if given.task.run_id == run:
                return str(given.token)
            token = RuntimeTokenHttpInterceptor(given.token)
            with contextlib.closing(connect(RuntimeHttpClient, connection, token)) as stale:
                stale.PushTaskOutput(
                    PushTaskOutputRequest(sub_status="failed", details="its driver is gone")
                )
