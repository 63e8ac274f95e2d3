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

from fedrl.engines.flower.adapter.node import Overtaken, Task, Tasks
from fedrl.engines.flower.adapter.records import Content
from fedrl.engines.flower.node import NodeClient
from fedrl.engines.flower.owner_log import say
from fedrl.engines.flower.superlink_client import HEARTBEAT_SECONDS

POLL_SECONDS, FIRST_POLL_SECONDS = 0.1, 0.02
"""Between two looks for a task: a tenth of the time since the last answer, within these."""
PATIENT_TRIES = 5
"""A second apart, before it is worth a line that a SuperNode does not answer."""
WATCH_SECONDS = 1.0
QUIET_SECONDS = 3.0
"""Without a message after an answer, and the time that the answer takes with so many bytes a second
to the SuperLink: only then is it surely there."""
SLOWEST = 2**20


def serve(
    client: NodeClient,
    address: str,
    secret: bytes,
    going_on: Callable[[], bool],
    changed: Callable[[], bool] = lambda: False,
    answer: Callable[[Content], Content] | None = None,
    log: Callable[[str], None] = say,
) -> None:
    """Answer message after message of the SuperNode at `address` while `going_on`.

    `answer` is in the place of the client's own, to tell its owner what it is about; `log` is told
    how the SuperNode is.

    Ends where the SuperNode might wait for the rest of an answer for ever: start another one. Ends,
    too, if `changed` asks for another one and nothing is under way: no answer is lost by that.
    """
    with contextlib.closing(Tasks(address, secret)) as tasks:
        tokens: list[str] = []
        quiet = time.monotonic() + QUIET_SECONDS
        answered, unheard = 0.0, 0

        def next_task() -> bool:
            """Whether there is a task to do, of which `tokens` then has the token."""
            if token := tasks.acquire():
                tokens.append(token)
            return bool(tokens)

        while going_on():
            try:
                if not (tokens or next_task()):
                    if time.monotonic() > quiet and changed() and not client.in_sum():
                        return
                    idle = time.monotonic() - answered
                    time.sleep(min(max(idle / 10, FIRST_POLL_SECONDS), POLL_SECONDS))
                    unheard = 0
                    continue
            except httpx.ConnectError as error:  # it is starting, or on its way out
                unheard += 1
                if unheard == PATIENT_TRIES:
                    log(f"the SuperNode does not answer ({type(error).__name__})")
                time.sleep(1.0)
                continue
            except (httpx.HTTPError, OSError) as error:  # a task may be ours, and nobody knows it
                log(f"the SuperNode did not answer ({type(error).__name__})")
                return
            try:
                with contextlib.closing(Task(address, tokens.pop(), next_task)) as task:
                    _answer(
                        client, task, going_on, answer or (lambda content: client.answer(content))
                    )
                quiet = time.monotonic() + QUIET_SECONDS + client.sent / SLOWEST
                answered = time.monotonic()
            except Overtaken:
                say("a message was given up: its run ended while it arrived")
            except Exception as error:  # noqa: BLE001 - a new SuperNode waits for nothing
                say(f"a message was given up ({type(error).__name__})")
                return


def _answer(
    client: NodeClient,
    task: Task,
    going_on: Callable[[], bool],
    answer: Callable[[Content], Content],
) -> None:
    over = threading.Event()
    beat = threading.Thread(target=_beat, args=(task, over, client, going_on), daemon=True)
    beat.start()
    try:
        task.answer(answer)
    finally:
        over.set()
        beat.join()


def _beat(
    task: Task, over: threading.Event, client: NodeClient, going_on: Callable[[], bool]
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
                task.heartbeat()
