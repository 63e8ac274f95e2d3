"""The executor of a SuperNode, in this process: takes its tasks and hands back the answers.

Flower's own executor starts a process for every message and runs in it the app that the SuperLink
sent. This one keeps the process and ignores the app: it answers with the fedrl installed here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import httpx
from flwr.app import Message
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedrl.engines.flower.link import HEARTBEAT_SECONDS, ME, signing
from fedrl.engines.flower.node import Client, say

POLL_SECONDS = 0.1


def serve(client: Client, address: str, secret: bytes, going_on: Callable[[], bool]) -> None:
    """Answer message after message of the SuperNode at `address` while `going_on`."""
    with contextlib.closing(_to(address, signing(secret))) as runtime:
        while going_on():
            try:
                task = runtime.AcquireTask(
                    AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
                )
                if task.token:
                    _answer(client, address, task.token)
                    continue
            except (httpx.HTTPError, OSError) as error:  # it is starting, or on its way out
                say(f"the SuperNode does not answer ({type(error).__name__})")
                time.sleep(1.0)
            time.sleep(POLL_SECONDS)


def _answer(client: Client, address: str, token: str) -> None:
    with contextlib.closing(_to(address, RuntimeTokenHttpInterceptor(token))) as runtime:
        over = threading.Event()
        beat = threading.Thread(target=_beat, args=(runtime, over), daemon=True)
        beat.start()
        try:
            message, context, _, _ = pull_task_input(runtime)
            push_message(
                runtime, Message(client.answer(message.content), reply_to=message), context
            )
            push_task_output(runtime, context, "completed", "")
        finally:
            over.set()
            beat.join()


def _beat(runtime: RuntimeHttpClient, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT_SECONDS):
        with contextlib.suppress(httpx.HTTPError, RuntimeError):
            runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest())


def _to(address: str, *interceptors: object) -> RuntimeHttpClient:
    version = RuntimeVersionHttpInterceptor(component_name=ME)
    return RuntimeHttpClient.from_server_address(address, True, None, [version, *interceptors])
