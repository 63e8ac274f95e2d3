"""The executor of a SuperNode, in this process: takes its tasks and hands back the answers.

Flower's own executor starts a process for every message and runs in it the app that the SuperLink
sent. This one keeps the process and ignores the app: it answers with the fedrl installed here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import context_to_proto
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from fedrl.engines.flower.node import Client, say
from fedrl.engines.flower.superlink_client import HEARTBEAT_SECONDS, ME, signing

POLL_SECONDS = 0.1
WATCH_SECONDS = 1.0


def serve(client: Client, address: str, secret: bytes, going_on: Callable[[], bool]) -> None:
    """Answer message after message of the SuperNode at `address` while `going_on`.

    Ends where the SuperNode might wait for the rest of an answer for ever: start another one.
    """
    with contextlib.closing(_to(address, signing(secret))) as runtime:
        tokens: list[str] = []

        def next_task() -> bool:
            """Whether there is a task to do, of which `tokens` then has the token."""
            request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
            if token := runtime.AcquireTask(request).token:
                tokens.append(token)
            return bool(tokens)

        while going_on():
            try:
                if not (tokens or next_task()):
                    time.sleep(POLL_SECONDS)
                    continue
            except httpx.ConnectError as error:  # it is starting, or on its way out
                say(f"the SuperNode does not answer ({type(error).__name__})")
                time.sleep(1.0)
                continue
            except (httpx.HTTPError, OSError) as error:  # a task may be ours, and nobody knows it
                say(f"the SuperNode did not answer ({type(error).__name__})")
                return
            try:
                _answer(client, address, tokens.pop(), next_task, going_on)
            except Overtaken:
                say("a message was given up: its run ended while it arrived")
            except Exception as error:  # noqa: BLE001 - a new SuperNode waits for nothing
                say(f"a message was given up ({type(error).__name__})")
                return


class Overtaken(Exception):
    """There is another task already: the rest of this one's message will never come."""


class _Arriving:
    """The SuperNode's interface, to a task whose message may be lost on its way.

    A SuperNode takes one message at a time and makes its task before the message is all there. If
    the run ends meanwhile, it turns to the next message and leaves the task behind, which an
    executor would wait for for hours.
    """

    def __init__(self, runtime: RuntimeHttpClient, next_task: Callable[[], bool]) -> None:
        self.runtime = runtime
        self.next_task = next_task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    def PullObject(self, request: Any) -> Any:  # the name is Flower's
        found = self.runtime.PullObject(request)
        if not found.object_available and self.next_task():
            raise Overtaken
        return found


def _answer(
    client: Client,
    address: str,
    token: str,
    next_task: Callable[[], bool],
    going_on: Callable[[], bool],
) -> None:
    with contextlib.closing(_to(address, RuntimeTokenHttpInterceptor(token))) as runtime:
        over = threading.Event()
        beat = threading.Thread(target=_beat, args=(runtime, over, client, going_on), daemon=True)
        beat.start()
        try:
            arriving: Any = _Arriving(runtime, next_task)
            message, context, _, _ = pull_task_input(arriving)
            push_message(
                runtime, Message(client.answer(message.content), reply_to=message), context
            )
            _end(runtime, SubStatus.COMPLETED, context)
        except Overtaken:
            _end(runtime, SubStatus.FAILED)
            raise
        finally:
            over.set()
            beat.join()


def _end(runtime: RuntimeHttpClient, status: str, context: Any = None) -> None:
    """Left alone a task would expire, and its error be taken for the answer to the message of that
    moment: from then on every answer would come one message late."""
    told = None if context is None else context_to_proto(context)
    runtime.PushTaskOutput(PushTaskOutputRequest(context=told, sub_status=status))


def _beat(
    runtime: RuntimeHttpClient,
    over: threading.Event,
    client: Client,
    going_on: Callable[[], bool],
) -> None:
    """Signs of life while a job is done; it ends with the SuperNode that is to carry its answer.

    A SuperNode ends when its SuperLink was restarted. Its successor is started when the job is
    over, which could be long after the driver has asked everybody again.
    """
    next_beat = time.monotonic() + HEARTBEAT_SECONDS
    while not over.wait(WATCH_SECONDS):
        if not going_on() and client.interrupt():  # else its work begins only now: look again
            return
        if time.monotonic() >= next_beat:
            next_beat += HEARTBEAT_SECONDS
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest())


def _to(address: str, *interceptors: Any) -> RuntimeHttpClient:
    version = RuntimeVersionHttpInterceptor(component_name=ME)
    return RuntimeHttpClient.from_server_address(address, True, None, [version, *interceptors])
