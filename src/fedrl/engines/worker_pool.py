"""Clients in processes of their own, one per core: a client that hangs can be stopped.

Processes are spawned, build the algorithm from a picklable recipe, warm it up (compiling is not the
clients' time) and compute on one thread each. A broadcast travels to a worker once per round. A
worker that dies or outlasts the deadline costs the client that it served and is replaced by one of
the same number; the others go on meanwhile.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait

from fedrl.core.abilities import WarmUp
from fedrl.core.threads import pinned_children
from fedrl.core.types import WORKER as NUMBER
from fedrl.core.types import Algorithm, Failure, Job, Result, Shareable, Tensors, UserError
from fedrl.engines import worker_pipe
from fedrl.engines.in_process import Watch, attempt, debugging, one_line, raised_at, shareable

START_SECONDS = 600.0
"""A worker that has not built and compiled its algorithm by then is taken for broken."""


class WorkerPool:
    """`build()` must be picklable: a function of a module, or a partial of one.

    While `release` is true, the broadcast of a job is emptied here as soon as its worker has it:
    for who has no use for it any more, and one job at a time.
    """

    release = False

    def __init__(
        self, build: Callable[[], Algorithm], count: int = 0, watch: Watch | None = None
    ) -> None:
        self.build = build
        self.watch = watch
        self.count = count or os.cpu_count() or 1
        self._workers: list[_Worker] = []
        self._waiting: list[tuple[int, Job]] = []  # that were submitted, the next one last
        self._done: deque[tuple[int, Result | Failure]] = deque()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def interrupt(self) -> bool:
        """From another thread: end the processes that are at work, if any; their jobs fail."""
        busy = [w for w in list(self._workers) if w.job is not None or not w.ready]
        for worker in busy:
            worker.process.kill()
        return bool(busy)

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
        """Outcomes in the order of the jobs; early ones of later jobs wait for their turn."""
        self._staff(len(jobs))
        waiting = list(enumerate(jobs))[::-1]
        finished: dict[int, Result | Failure] = {}
        turn = 0
        try:
            while turn < len(jobs):
                self._hand_out(waiting)
                finished |= self._collect(deadline)
                while turn in finished:
                    yield finished.pop(turn)
                    turn += 1
        finally:
            # Left before the end: what is still under way must not answer a later round.
            for worker in [w for w in self._workers if w.job is not None]:
                self._replace(worker)

    def start(self) -> None:
        """Have a worker built and compiled before there is work for it."""
        self._staff(1)
        while not self._workers[0].ready:
            self._collect(0.0)

    def submit(self, jobs: Sequence[Job]) -> None:
        """More work for whoever is free, not more than one job of a client at a time."""
        self._waiting[:0] = [(job.client, job) for job in jobs][::-1]
        self._staff(len(self._waiting) + sum(w.job is not None for w in self._workers))
        self._hand_out(self._waiting)

    def next_outcome(self, deadline: float = 0.0) -> tuple[int, Result | Failure]:
        """The next outcome of what was submitted, in whatever order they come, and whose it is."""
        while not self._done:
            self._hand_out(self._waiting)
            self._done.extend(self._collect(deadline).items())
        self._hand_out(self._waiting)  # nobody idle while the server makes use of the outcome
        return self._done.popleft()

    def _staff(self, jobs: int) -> None:
        while len(self._workers) < min(self.count, jobs):
            self._workers.append(_Worker(self.build, len(self._workers), self.watch))

    def _hand_out(self, waiting: list[tuple[int, Job]]) -> None:
        for worker in self._workers:
            if worker.ready and worker.job is None and waiting:
                worker.give(*waiting.pop(), self.release)

    def _collect(self, deadline: float) -> dict[int, Result | Failure]:
        """Wait until a worker is ready, answers, dies or outlasts its time."""
        engaged = [w for w in self._workers if w.job is not None or not w.ready]
        left = min(w.expires(deadline) for w in engaged) - time.monotonic()
        answered = wait([w.pipe for w in engaged], None if left == float("inf") else max(left, 0))
        outcomes: dict[int, Result | Failure] = {}
        for worker in engaged:
            late = time.monotonic() >= worker.expires(deadline)
            if not worker.ready:
                worker.check_start(worker.pipe in answered, late)
            elif worker.pipe in answered or late:
                assert worker.job is not None
                index, job = worker.job
                if worker.pipe in answered:
                    outcomes[index] = worker.take()
                else:
                    reason = f"no answer within the deadline of {deadline:g} s"
                    outcomes[index] = Failure(job.client, reason)
                if worker.broken or worker.job is not None:
                    self._replace(worker)
        return outcomes

    def _replace(self, worker: _Worker) -> None:
        worker.stop()
        self._workers[worker.number] = _Worker(self.build, worker.number, self.watch)


class _Worker:
    """One spawned process and the pipe to it."""

    def __init__(self, build: Callable[[], Algorithm], number: int, watch: Watch | None) -> None:
        self.number = number
        self.watch = watch
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve,
            args=(theirs, build, os.getpid(), number, None if watch is None else watch.texts),
            daemon=True,
        )
        with pinned_children(), _interrupts_ignored():
            self.process.start()
        theirs.close()
        self.job: tuple[int, Job] | None = None
        self.started = time.monotonic()
        self.ready = False
        self.broken = False
        self._sent: Tensors | None = None

    def expires(self, deadline: float) -> float:
        """When its time is up: the deadline for a job, a long while for a start."""
        if not self.ready:
            return self.started + START_SECONDS
        return self.started + deadline if deadline else float("inf")

    def check_start(self, answered: bool, late: bool) -> None:
        """Ready once it says so; any trouble stops the run, because every worker would fail."""
        trouble: str | None = None
        if answered:
            try:
                trouble = self.pipe.recv()
                self.ready = trouble is None
            except (EOFError, ConnectionResetError):
                self.process.join(5)
                trouble = f"it ended with exit code {self.process.exitcode}"
        elif late:
            trouble = f"no answer within {START_SECONDS:g} s"
        if trouble is not None:
            if isinstance(trouble, Shareable):  # about what a client holds, not about processes
                raise UserError(trouble)
            raise UserError(f"a worker process could not start: {trouble}")

    def give(self, index: int, job: Job, release: bool) -> None:
        new = self._sent is not job.broadcast
        self._sent = job.broadcast
        self.job, self.started = (index, job), time.monotonic()
        # If the process is dead, `take` finds the closed pipe and says so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(new)  # before: two broadcasts would have to fit into its memory
            worker_pipe.send(self.pipe, job if new else replace(job, broadcast={}))
        if release:
            job.broadcast.clear()
            self._sent = None

    def take(self) -> Result | Failure:
        assert self.job is not None
        client = self.job[1].client
        self.job = None
        try:
            outcome, told = worker_pipe.receive(self.pipe)
        except (EOFError, ConnectionResetError):
            self.broken = True
            self.process.join(5)
            return Failure(client, f"its process died (exit code {self.process.exitcode})")
        if self.watch is not None:
            for text in told:
                self.watch.tell(client, text)
        return outcome

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Children inherit it: Ctrl-C is the parent's to handle, from their first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(
    pipe: Connection,
    build: Callable[[], Algorithm],
    parent: int,
    number: int,
    texts: bool | None,
) -> None:
    """A worker's life: build, warm up, say so, then one job after the other.

    `texts`: tracebacks go along with failures, with or without what the errors say; None: no.
    """
    os.environ[NUMBER] = str(number)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        algorithm = build()
        if isinstance(algorithm, WarmUp):
            algorithm.warm_up()
    except Exception as error:  # noqa: BLE001 - reported to the parent, which stops the run
        # In full: no client's work has begun, so this is about settings.
        text = one_line(error) + (raised_at(error) if debugging() else "")
        pipe.send(Shareable(" ".join(str(error).split())) if shareable(error) else text)
        return
    pipe.send(None)
    broadcast: Tensors = {}
    told: list[str] = []
    watch = None if texts is None else Watch(lambda _, text: told.append(text), texts)
    while True:
        try:
            if pipe.recv():
                broadcast = {}
            job = worker_pipe.receive(pipe)
        except EOFError:
            return
        broadcast = broadcast or job.broadcast
        outcome = attempt(algorithm, replace(job, broadcast=broadcast), watch)
        worker_pipe.send(pipe, (outcome, told))
        told.clear()
        del job, outcome  # not beside the next ones


def _end_with(parent: int) -> None:
    """A client that hangs must not outlive a parent that was killed."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
