"""Work for a pool of processes that may be stopped at any moment: by time, by Ctrl-C, by a kill.

Every job writes files that last and goes on where it was, so stopping is no loss. A job hears that
its time is over as a run hears Ctrl-C: it saves its last finished round and ends.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.queues import SimpleQueue
from multiprocessing.sharedctypes import Synchronized
from types import FrameType
from typing import TypeAlias

from fedrl.core.abilities import WAITING
from fedrl.core.number_format import duration
from fedrl.core.threads import pinned_children
from fedrl.core.types import WORKER, UserError
from fedrl.engines.in_process import debugging, one_line, raised_at
from fedrl.runs import provenance
from fedrl.runs.compiled_programs import release_if_crowded
from fedrl.runs.interrupt import Interrupt


@dataclass(frozen=True)
class Job:
    """`work()` must be picklable; `cost` is in any unit, the same for all jobs of a list.

    Those of more `worth` come first. `then()` tells, here, what follows from a job that is done.
    """

    name: str
    cost: float
    work: Callable[[], object]
    worth: float = 0.0
    then: Callable[[], Sequence[Job]] | None = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: finished, stopped (`trouble` is empty) or with an error, in one line."""

    finished: bool
    seconds: float
    trouble: str = ""


KILLED = (
    "a process that was computing has been killed (out of memory?): the same command goes on where "
    "it was, perhaps with fewer --processes"
)
NEVER_BEGAN = (
    "the processes that were to compute ended before they began, as those of a script do that "
    'trains without if __name__ == "__main__":'
)
LISTEN_SECONDS = 1.0
_told_to_stop = threading.Event()
"""Of a process of the pool: jobs that its queue already holds must not begin after that."""
_job = ""
"""Of a process of the pool: what it is at."""

Lines: TypeAlias = "SimpleQueue[str]"


class Pool(ProcessPoolExecutor):
    """`heard` are lines of jobs that wait for something (`WAITING`); their other talk goes
    nowhere."""

    def __init__(self, processes: int, context: SpawnContext) -> None:
        self.started, self.heard = context.Value("i", 0), context.SimpleQueue()
        begin = (self.started, provenance.commit(), self.heard)
        super().__init__(processes, context, initializer=_begin, initargs=begin)

    def lines(self) -> Iterator[str]:
        while not self.heard.empty():
            yield self.heard.get()


@contextlib.contextmanager
def pool(processes: int) -> Iterator[Pool]:
    """Processes that compute on one thread each and end with this one, however it ends."""
    context = multiprocessing.get_context("spawn")
    with pinned_children(), Interrupt():
        executor = Pool(processes, context)
        try:
            yield executor
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                child.terminate()  # heard as Ctrl-C by a job, which saves what it has
            raise
        except BrokenProcessPool as error:
            raise UserError(KILLED if executor.started.value else NEVER_BEGAN) from error
        finally:
            executor.shutdown(cancel_futures=True)


def finish(
    executor: Pool,
    jobs: Sequence[Job],
    say: Callable[[str], None],
    until: float | None,
    warn: Callable[[str], None] | None = None,
    slots: int = 0,
    processes: int = 0,
) -> bool:
    """Do the jobs, the longest first, with a line for each, and for what they wait for; False if
    some are not finished.

    `until` is a time of `time.time()`: the processes have no other clock in common. `warn`, if
    there is one, hears of errors and of waiting instead of `say`. With `slots`, no more than so
    many are handed over at a time, so that what follows from a job may come before others that
    wait. How long the rest takes is told for so many `processes`.
    """
    waiting = in_order(jobs)
    done, total = 0.0, sum(job.cost for job in jobs)
    speed = Speed(processes or slots or 1)
    futures: dict[Future[Outcome], Job] = {}
    number, count = 0, len(jobs)
    whole = True
    while waiting or futures:
        while waiting and (not slots or len(futures) < slots):
            job = waiting.pop(0)
            futures[executor.submit(perform, job.work, until, job.name)] = job
        ended = wait(futures, LISTEN_SECONDS, FIRST_COMPLETED).done  # a set, in no order
        for line in executor.lines():
            (warn or say)(line)
        for future in [one for one in futures if one in ended]:
            job, outcome = futures.pop(future), future.result()
            number += 1
            done += job.cost
            whole &= outcome.finished
            if not outcome.finished:
                if outcome.trouble:
                    (warn or say)(f"{job.name}: {outcome.trouble}")
                elif outcome.seconds:  # those that never began are counted by whoever asked
                    say(f"{job.name}: stopped, the time is over")
                continue
            if job.then is not None and (more := job.then()):
                waiting = in_order([*waiting, *more])
                total, count = total + sum(one.cost for one in more), count + len(more)
            speed.add(job.cost, outcome.seconds)
            left = f", {speed.left(total - done)} left" if number < count else ""
            say(f"{job.name} in {duration(outcome.seconds)}; {number} of {count}{left}")
    return whole


class Speed:
    """How long jobs take, by those that have ended: a process's first one compiles, which the later
    ones need not, so that what is told by first ones alone is a bound."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._ended: list[tuple[float, float]] = []

    def add(self, cost: float, seconds: float) -> None:
        self._ended.append((cost, seconds))

    def left(self, cost: float) -> str:
        """Of the rest, in words."""
        counted = self._ended[self.processes :] or self._ended
        costs, seconds = map(sum, zip(*counted, strict=True))
        rest = seconds / costs * cost / self.processes if costs else 0.0
        first = len(self._ended) <= self.processes
        return f"{'at most ' if first else ''}about {duration(rest)}"


def in_order(jobs: Sequence[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (-job.worth, -job.cost))


def perform(work: Callable[[], object], until: float | None, name: str = "") -> Outcome:
    """In a process of the pool: the work, as far as the time allows. Its talk goes nowhere, but for
    what it waits for."""
    global _job
    started, _job = time.monotonic(), name
    if _told_to_stop.is_set() or (until is not None and until <= time.time()):
        return Outcome(False, 0.0)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            with _stopped_at(until), contextlib.redirect_stdout(nowhere):
                work()
        except KeyboardInterrupt:
            if until is None or time.time() < until:
                _told_to_stop.set()
            return Outcome(False, time.monotonic() - started)
        except UserError as error:
            return Outcome(False, time.monotonic() - started, str(error).splitlines()[0])
        except Exception as error:  # noqa: BLE001 - CUDA, a full disk, …: the other jobs go on
            where = raised_at(error) if debugging() else ""
            return Outcome(False, time.monotonic() - started, one_line(error) + where)
        finally:
            release_if_crowded()
    return Outcome(True, time.monotonic() - started)


@contextlib.contextmanager
def _stopped_at(until: float | None) -> Iterator[None]:
    """Raises KeyboardInterrupt on SIGTERM, and when the time is over."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def time_is_over(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGTERM)  # a run in progress has its own ears for this one

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, stop),
        signal.SIGALRM: signal.signal(signal.SIGALRM, time_is_over),
    }
    if until is not None:
        signal.setitimer(signal.ITIMER_REAL, max(until - time.time(), 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


class _Tell(logging.Handler):
    """In a process of the pool: what a job waits for, to the one that began the pool."""

    def __init__(self, heard: Lines) -> None:
        super().__init__()
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.put(f"{_job}: {record.getMessage()}")


def _begin(started: Synchronized[int], commit: str | None, heard: Lines) -> None:
    """A process's first moments: Ctrl-C is the parent's to handle, and so is its end.

    `started` counts the pool's processes: each has a number, by which it takes a GPU. `commit` is
    of the code that the parent began with: hours later the checkout may have another.
    """
    if commit is not None:
        os.environ[provenance.COMMIT] = commit
    logging.getLogger(WAITING).addHandler(_Tell(heard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with started.get_lock():
        os.environ[WORKER] = str(started.value)
        started.value += 1
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot say so, and its jobs would keep their folders locked."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def cores() -> int:
    return os.cpu_count() or 1
