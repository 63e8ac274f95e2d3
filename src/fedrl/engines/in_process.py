"""The default engine: clients one after the other in this process, or all in one compiled call.

Nothing here can stop a client that hangs; `worker_pool.py` can.

What a client raises may quote its tasks, and the server writes reasons into its log and report: so
only the exception's type leaves the client, unless its text is `Shareable`. With the environment
variable FEDRL_DEBUG set where the client computes, the text and the line of code go along: for
simulations on one's own data.

Whoever owns the machine that the clients compute on may ask for tracebacks (`Watch`): where an
error came from, and of code from outside, which its author is about to mend, its text as well.
Nodes ask for none.
"""

from __future__ import annotations

import itertools
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedrl.core.abilities import Batched
from fedrl.core.types import Algorithm, Failure, Job, Result, Shareable, UserError

DEBUG = "FEDRL_DEBUG"
"""Environment variable: unless it is empty or 0, clients' errors reach the server with their texts
and the lines of code that raised them."""

JAX_NOTE = "\n--------------------\nFor simplicity, JAX has removed"
"""What JAX writes below its tracebacks, about a next one that is not there."""


@dataclass(frozen=True)
class Watch:
    """Who is told of clients' errors on this machine: `tell(client, traceback)`.

    `texts`: with what the errors say.
    """

    tell: Callable[[int, str], None]
    texts: bool = False


class InProcess:
    def __init__(self, algorithm: Algorithm, watch: Watch | None = None) -> None:
        self.algorithm = algorithm
        self.watch = watch

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
        """Outcomes in the order of the jobs. `deadline` needs processes that can be stopped."""
        for _, same in itertools.groupby(jobs, key=lambda job: id(job.broadcast)):
            together = list(same)
            if isinstance(self.algorithm, Batched) and len(together) > 1:
                yield from self._many(self.algorithm, together)
            else:
                for job in together:
                    yield attempt(self.algorithm, job, self.watch)

    def _many(self, algorithm: Batched, jobs: list[Job]) -> Iterator[Result | Failure]:
        try:
            yield from algorithm.local_many(jobs)
        except Exception as error:  # noqa: BLE001 - find out whose it is, and spare the others
            outcomes = [attempt(self.algorithm, job, self.watch) for job in jobs]
            if self.watch is not None and not any(isinstance(one, Failure) for one in outcomes):
                _tell(self.watch, jobs[0].client, error)  # of the common call alone
            yield from outcomes


def attempt(algorithm: Algorithm, job: Job, watch: Watch | None = None) -> Result | Failure:
    """One client's work; whatever it raises costs this client's update and nothing else."""
    try:
        return algorithm.local(job)
    except Exception as error:  # noqa: BLE001 - a client may fail in any way
        if watch is not None:
            _tell(watch, job.client, error)
        return Failure(job.client, reason(error, watched=watch is not None))


def _tell(watch: Watch, client: int, error: Exception) -> None:
    """A shareable error says all in its one line; of what may be behind it, where that was."""
    if _interrupted(error):
        return
    told = shareable(error)
    behind = error.__cause__ if told else error
    if behind is not None:
        line = f"\n{error}" if told else ""
        watch.tell(client, trace(behind, watch.texts and not told) + line)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: compiled code makes another error of what a signal raises."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def trace(error: BaseException, text: bool) -> str:
    """The traceback as Python writes it; without `text` all but what the error says."""
    if text or debugging():
        return "".join(traceback.format_exception(error)).partition(JAX_NOTE)[0].rstrip()
    lines = ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
    return "".join(lines) + f"{type(error).__name__} (with {DEBUG}=1: what it says)"


def reason(error: Exception, watched: bool = False) -> str:
    """What the server may know of a client's error; where it is watched, the log has the rest."""
    if debugging():
        return one_line(error) + raised_at(error)
    if shareable(error):
        return one_line(error)
    if watched:
        return f"{type(error).__name__} (its traceback is in log.txt)"
    return f"{type(error).__name__} (details stay with the client unless {DEBUG} is set)"


def shareable(error: Exception) -> bool:
    """Whether its text was written for the server."""
    return len(error.args) == 1 and isinstance(error.args[0], Shareable)


def debugging() -> bool:
    """Whether errors may say what they hold; whoever sets the variable to 0 says no."""
    return os.environ.get(DEBUG, "").strip().lower() not in ("", "0", "false", "no", "off")


def raised_at(error: BaseException) -> str:
    """ " (file.py:12, in step)": the innermost line of a method's own code, if any is.

    Libraries and Python itself are not; fedrl is, also where it is installed as a package.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = ([f for f in frames if _own(f.filename)] or list(frames))[-1]
    return f" ({last.filename}:{last.lineno}, in {last.name})"


def _own(file: str) -> bool:
    library = "-packages" in file or file.startswith((sysconfig.get_path("stdlib"), "<"))
    return not library or f"-packages{os.sep}fedrl{os.sep}" in file


def one_line(error: BaseException) -> str:
    """With its type, unless it was written for people."""
    text = " ".join(str(error).split())
    if text and isinstance(error, UserError):
        return text[:300]
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
