"""Clients in processes of their own, one per core: a client that hangs can be stopped.

Processes are spawned, build the algorithm from a picklable recipe, and compute on one thread each.
A broadcast travels to a worker once per round. A worker that dies or outlasts the deadline costs
the client that it served and is replaced.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from fedrl.engines.inprocess import attempt, one_line
from fedrl.threads import pinned_children
from fedrl.types import Algorithm, Failure, Job, Result, Tensors, UserError

START_SECONDS = 120.0
"""A worker that has not built its algorithm by then is taken for broken."""


class Workers:
    """`build()` must be picklable: a function of a module, or a partial of one."""

    def __init__(self, build: Callable[[], Algorithm], count: int = 0) -> None:
        self.build = build
        self.count = count or os.cpu_count() or 1
        self._workers: list[_Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
        """Outcomes in the order of the jobs; early ones of later jobs wait for their turn."""
        while len(self._workers) < min(self.count, len(jobs)):
            self._workers.append(_Worker(self.build))
        for worker in self._workers:
            worker.ready()
        waiting = list(enumerate(jobs))[::-1]
        finished: dict[int, Result | Failure] = {}
        turn = 0
        while turn < len(jobs):
            for worker in self._workers:
                if worker.job is None and waiting:
                    worker.give(*waiting.pop())
            finished |= self._collect(deadline)
            while turn in finished:
                yield finished.pop(turn)
                turn += 1

    def _collect(self, deadline: float) -> dict[int, Result | Failure]:
        """Wait until a busy worker answers, dies or outlasts the deadline."""
        busy = [worker for worker in self._workers if worker.job is not None]
        left = min(worker.started for worker in busy) + deadline - time.monotonic()
        ready = wait([worker.pipe for worker in busy], max(left, 0.0) if deadline else None)
        outcomes: dict[int, Result | Failure] = {}
        for worker in busy:
            assert worker.job is not None
            index, job = worker.job
            if worker.pipe in ready:
                outcome = worker.take()
            elif deadline and time.monotonic() - worker.started >= deadline:
                outcome = Failure(job.client, f"no answer within the deadline of {deadline:g} s")
            else:
                continue
            if worker.broken or worker.pipe not in ready:
                worker.stop()
                self._workers[self._workers.index(worker)] = _Worker(self.build)
            outcomes[index] = outcome
        return outcomes


class _Worker:
    """One spawned process and the pipe to it."""

    def __init__(self, build: Callable[[], Algorithm]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, build), daemon=True)
        with pinned_children():
            self.process.start()
        theirs.close()
        self.job: tuple[int, Job] | None = None
        self.started = 0.0
        self.broken = False
        self._is_ready = False
        self._sent: Tensors | None = None

    def ready(self) -> None:
        """Building the algorithm is not the clients' time: wait for it before the first job."""
        if self._is_ready:
            return
        answer: Any = f"no answer within {START_SECONDS:g} s"
        try:
            if self.pipe.poll(START_SECONDS):
                answer = self.pipe.recv()
        except EOFError:
            self.process.join(5)
            answer = f"it ended with exit code {self.process.exitcode}"
        if answer is not True:
            raise UserError(f"a worker process could not start: {answer}")
        self._is_ready = True

    def give(self, index: int, job: Job) -> None:
        self.ready()
        new = self._sent is not job.broadcast
        self._sent = job.broadcast
        # If the process is dead, `take` finds the closed pipe and says so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send((job.client, job.broadcast if new else None, job.state, job.seed))
        self.job, self.started = (index, job), time.monotonic()

    def take(self) -> Result | Failure:
        assert self.job is not None
        client = self.job[1].client
        self.job = None
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.broken = True
            self.process.join(5)
            return Failure(client, f"its process died (exit code {self.process.exitcode})")

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, build: Callable[[], Algorithm]) -> None:
    """A worker's life: build, say so, then one job after the other until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        algorithm = build()
    except Exception as error:  # noqa: BLE001 - reported to the parent, which stops the run
        pipe.send(one_line(error))
        return
    pipe.send(True)
    broadcast: Tensors = {}
    while True:
        try:
            client, new, state, seed = pipe.recv()
        except EOFError:
            return
        broadcast = broadcast if new is None else new
        pipe.send(attempt(algorithm, Job(client, broadcast, state, seed)))
