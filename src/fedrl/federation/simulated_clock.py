"""Clients of different speeds on a clock that only counts: asynchrony that a seed repeats.

Work is computed when it begins, together where the method can, and its outcome is kept back until
the clock has reached the moment at which the client would have finished. The clock jumps from one
such moment to the next, so that a simulated hour costs nothing.

A client's time for a job is its own time, or a draw from a log-normal distribution with median 1,
times a log-normal draw of that job. Draws come from the run's seed and the job's, so they are the
same after a restart.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from fedrl.core import seeding
from fedrl.core.types import Algorithm, Failure, Job, Result
from fedrl.core.update_refusal import ranges, refusal

Duration = Callable[[Job], float]


class Due(NamedTuple):
    """An outcome and when it comes; at the same moment, lower clients come first."""

    time: float
    client: int
    outcome: Result | Failure


def durations(seed: int, times: Sequence[float], spread: float, jitter: float) -> Duration:
    """`times` of the clients, or e^(spread·z) of each; times e^(jitter·z) of each job."""

    def duration(job: Job) -> float:
        if times:
            own = times[job.client]
        else:
            own = math.exp(spread * seeding.generator(seed, "speed", client=job.client).normal())
        return own * math.exp(jitter * seeding.generator(job.seed, "duration").normal())

    return duration


class Immediate(Protocol):
    """An engine in this process: what it is given is done when it is asked for it."""

    algorithm: Algorithm

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]: ...


class SimulatedClock:
    """Clients at work on simulated time."""

    def __init__(self, engine: Immediate, duration: Duration) -> None:
        self.engine = engine
        self.duration = duration
        self.time = 0.0
        self._due: list[Due] = []

    def submit(self, jobs: Sequence[Job]) -> None:
        algorithm = self.engine.algorithm
        for job, outcome in zip(jobs, self.engine.run(jobs)):
            # Checked before it waits: what waits goes into checkpoints.
            reason = refusal(outcome, algorithm.declare(job.broadcast), ranges(algorithm))
            final = isinstance(outcome, Failure) and outcome.final
            good = outcome if reason is None else Failure(job.client, reason, final)
            heapq.heappush(self._due, Due(self.time + self.duration(job), job.client, good))

    def next_outcome(self, deadline: float = 0.0) -> tuple[int, Result | Failure]:
        """Who finishes next, and the outcome. No deadline stops simulated work."""
        self.time, client, outcome = heapq.heappop(self._due)
        return client, outcome

    def waiting(self) -> list[Due]:
        return sorted(self._due, key=lambda due: due[:2])

    def restore(self, time: float, waiting: Iterable[Due]) -> None:
        self.time, self._due = time, list(waiting)
        heapq.heapify(self._due)
