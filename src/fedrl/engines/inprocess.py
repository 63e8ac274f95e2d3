"""The default engine: clients one after the other in this process, or all in one compiled call.

Nothing here can stop a client that hangs; `workers.py` can.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fedrl.types import Algorithm, Batched, Failure, Job, Result


class InProcess:
    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm

    def run(self, jobs: Sequence[Job], deadline: float = 0.0) -> Iterator[Result | Failure]:
        """Outcomes in the order of the jobs. `deadline` needs processes that can be stopped."""
        for _, same in itertools.groupby(jobs, key=lambda job: id(job.broadcast)):
            together = list(same)
            if isinstance(self.algorithm, Batched) and len(together) > 1:
                yield from self._many(self.algorithm, together)
            else:
                for job in together:
                    yield attempt(self.algorithm, job)

    def _many(self, algorithm: Batched, jobs: list[Job]) -> Iterator[Result | Failure]:
        try:
            yield from algorithm.local_many(jobs)
        except Exception:  # noqa: BLE001 - one client's error: find out whose, and spare the others
            for job in jobs:
                yield attempt(self.algorithm, job)


def attempt(algorithm: Algorithm, job: Job) -> Result | Failure:
    """One client's work; whatever it raises costs this client's update and nothing else."""
    try:
        return algorithm.local(job)
    except Exception as error:  # noqa: BLE001 - a client may fail in any way
        return Failure(job.client, one_line(error))


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
