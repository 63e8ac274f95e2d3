"""Processes have numbers, by which they take GPUs; a replacement keeps its predecessor's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fedrl.core.types import WORKER, Failure, Job, Result
from fedrl.engines.worker_pool import WorkerPool
from fedrl.runs.process_pool import pool

pytestmark = pytest.mark.slow

DIES, LIVES = 0, 1


class Numbered:
    """An algorithm whose clients say which worker served them, or take it with them."""

    initial_exchange, reports = False, frozenset({"train/worker"})

    def local(self, job):
        if job.seed == DIES:
            os._exit(1)
        return Result(job.client, {}, metrics={"train/worker": float(os.environ[WORKER])})


def outcomes(workers: WorkerPool, seed: int) -> list[Result | Failure]:
    """Of two clients, one for each worker: both are up before the next call."""
    found = list(workers.run([Job(client, {}, None, seed) for client in (0, 1)]))
    for worker in workers._workers:
        while not worker.ready:
            worker.check_start(worker.pipe.poll(60), late=False)
    return found


def test_workers_are_numbered_and_replacements_keep_the_number():
    with WorkerPool(Numbered, 2) as workers:
        outcomes(workers, LIVES)
        for seed in (LIVES, DIES, LIVES):
            found = outcomes(workers, seed)
            if seed == DIES:
                assert all(isinstance(outcome, Failure) for outcome in found)
            else:
                assert sorted(f.metrics["train/worker"] for f in found) == [0.0, 1.0]
    assert WORKER not in os.environ


def test_the_processes_of_a_pool_are_numbered(tmp_path):
    with pool(3) as executor:
        # Each waits until all three are there: no process can answer twice.
        found = executor.map(meet, [tmp_path] * 3)
        assert sorted(found) == ["0", "1", "2"]
    assert WORKER not in os.environ


def meet(folder: Path) -> str:
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 3:
        time.sleep(0.01)
    return os.environ[WORKER]
