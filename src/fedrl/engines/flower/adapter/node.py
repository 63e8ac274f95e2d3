"""The tasks of a SuperNode: the node is its executor, in the place of its ClientApps.

Flower's own executor starts a process for every message and runs in it the app that the SuperLink
sent. Here is only how tasks are taken and answered; who does, and when, is `node_executor.py`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.common.serde import (
    context_from_proto,
    context_to_proto,
    message_to_proto,
    metadata_from_proto,
)
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from fedrl.engines.flower.adapter import COMPONENT, records, transfer
from fedrl.engines.flower.adapter.driver import executor_signature

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.25
OVERTAKEN_SECONDS = 1.0
"""Between two looks whether there is another task."""


class Overtaken(Exception):
    """There is another task already: the rest of this one's message will never come."""


class Tasks:
    """What there is to do at a SuperNode, for who knows its secret."""

    def __init__(self, address: str, secret: bytes) -> None:
        self._runtime = _to(address, executor_signature(secret))

    def acquire(self) -> str:
        """The token of the next task; empty if there is none."""
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        return self._runtime.AcquireTask(request).token

    def close(self) -> None:
        self._runtime.close()


class Task:
    """One message to answer. `overtaken` says whether the SuperNode has another one already.

    A SuperNode takes one message at a time and makes its task before the message is all there. If
    the run ends meanwhile, it turns to the next message and leaves the task behind, which an
    executor would wait for for hours.
    """

    def __init__(self, address: str, token: str, overtaken: Callable[[], bool]) -> None:
        self._runtime = _to(address, RuntimeTokenHttpInterceptor(token))
        self._overtaken = overtaken

    def answer(self, reply: Callable[[RecordDict], RecordDict]) -> None:
        """Take the message, send what `reply` makes of it, and say that the task is done.

        Left alone a task would expire, and its error be taken for the answer to the message of that
        moment: from then on every answer would come one message late.
        """
        try:
            arriving: Any = _Arriving(self._runtime, self._overtaken)
            message, context, _, _ = pull_task_input(arriving)
            told = Message(reply(message.content), reply_to=message)
            arriving.settle()
            push_message(self._runtime, told, context)
            self._end(SubStatus.COMPLETED, context)
        except Overtaken:
            self._end(SubStatus.FAILED)
            raise

    def heartbeat(self) -> None:
        self._runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest())

    def close(self) -> None:
        self._runtime.close()

    def _end(self, status: str, context: Context | None = None) -> None:
        state = None if context is None else context_to_proto(context)
        self._runtime.PushTaskOutput(PushTaskOutputRequest(context=state, sub_status=status))


class _Arriving:
    """The SuperNode's interface, to a task whose message may be lost on its way.

    A task is there before its message is. Who asks for a piece then would wait for a second before
    it asks again, two seconds before it asks a third time, and so on: in a secure sum, whose five
    messages are small, that was most of the time.
    """

    def __init__(self, runtime: RuntimeHttpClient, overtaken: Callable[[], bool]) -> None:
        self.runtime, self.overtaken = runtime, overtaken
        self._left_behind = False  # known to all threads that ask for its pieces
        self._unsettled: list[Callable[[], object]] = []

    def settle(self) -> None:
        """Wait until the SuperNode has all of the message, and have it forget it: once."""
        steps, self._unsettled = self._unsettled, []
        for step in steps:
            step()

    def settle_by(self, *steps: Callable[[], object]) -> None:
        self._unsettled = list(steps)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # the name is Flower's
        pause, look = FIRST_PAUSE, time.monotonic() + OVERTAKEN_SECONDS
        while True:
            pulled = self.runtime.PullObject(request)
            if pulled.object_available or not pulled.object_found:
                return pulled
            if time.monotonic() >= look:
                self._left_behind = self._left_behind or self.overtaken()
                if self._left_behind:
                    raise Overtaken
                look = time.monotonic() + OVERTAKEN_SECONDS
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)


def pull_task_input(arriving: _Arriving) -> tuple[Message, Context, None, None]:
    """As Flower's own, but the message's pieces stay at the SuperNode until they are read."""
    given = arriving.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id = given.task_id
    TaskIdentity.run_id = given.run.run_id
    TaskIdentity.node_id = given.context.node_id
    context = context_from_proto(given.context)
    pulled = arriving.PullMessages(PullAppMessagesRequest())
    if not pulled.messages_list:
        raise RuntimeError("a task without a message")
    node, tree = Node(node_id=context.node_id), pulled.message_object_trees[0]
    fetch = make_pull_object_fn_protobuf(arriving.PullObject, node, context.run_id)
    confirm = make_confirm_message_received_fn_protobuf(
        arriving.ConfirmMessageReceived, node, context.run_id
    )
    # The message's own object is the last that a SuperNode fetches.
    arriving.settle_by(lambda: fetch(tree.object_id), lambda: confirm(tree.object_id))
    metadata = metadata_from_proto(pulled.messages_list[0].metadata)
    metadata.__dict__["_message_id"] = tree.object_id
    content = records.incoming(tree, fetch, arriving.settle)
    return make_message(metadata, content), context, None, None


def push_message(runtime: RuntimeHttpClient, message: Message, context: Context) -> None:
    """As Flower's own, but pieces are made when it is their turn."""
    message.metadata.__dict__["_message_id"] = message.object_id
    with no_object_id_recompute():
        announced = runtime.PushMessages(
            PushAppMessagesRequest(
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[get_object_tree(message)],
            )
        )
        put = make_push_object_fn_protobuf(
            runtime.PushObject, Node(node_id=context.node_id), context.run_id, announced.session_id
        )
        transfer.push(get_all_nested_objects(message), announced.objects_to_push, put)


def _to(address: str, interceptor: ProtobufClientInterceptor) -> RuntimeHttpClient:
    version = RuntimeVersionHttpInterceptor(component_name=COMPONENT)
    return RuntimeHttpClient.from_server_address(address, True, None, [version, interceptor])


def client_app(reply: Callable[[int, Path, str, RecordDict], RecordDict]) -> ClientApp:
    """For SuperNodes that start ClientApps themselves: a process and an algorithm per message.

    Their node config says `client=3 folder="/srv/fedrl"`, and `data` where FEDRL_DATA is not set.
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        node = context.node_config
        number, folder, data = node["client"], node["folder"], node.get("data", "")
        content = reply(int(number), Path(str(folder)), str(data), message.content)
        return Message(content, reply_to=message)

    return app
