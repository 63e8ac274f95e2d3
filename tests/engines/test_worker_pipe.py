"""What goes through a pipe arrives as it was, and is there once on each side."""

from __future__ import annotations

import multiprocessing
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

from fedrl.core.types import Job, Result, Spec, Tensors
from fedrl.engines import worker_pipe
from fedrl.engines.worker_pool import WorkerPool


def through(thing: Any) -> Any:
    ours, theirs = multiprocessing.Pipe()
    sender = threading.Thread(target=worker_pipe.send, args=(ours, thing))
    sender.start()
    found = worker_pipe.receive(theirs)
    sender.join()
    return found


def test_arrays_of_all_sizes_and_orders_arrive():
    large = np.random.default_rng(0).standard_normal((700, 300))
    thing = {
        "large": large, "view": large[::2, 1:], "turned": large.T, "none": np.zeros((0, 3)),
        "one": np.float32(2), "text": ["x", None], "small": np.arange(3),
    }  # fmt: skip
    found = through(thing)
    for name in ("large", "view", "turned", "none", "small"):
        np.testing.assert_array_equal(found[name], thing[name])
    assert (found["one"], found["text"]) == (2, ["x", None])
    found["large"] += 1  # it is its receiver's own


def test_neither_side_has_a_copy_of_an_array():
    x = np.ones(4_000_000)
    tracemalloc.start()
    try:
        found = through(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.sum() == x.sum()
    assert peak < 1.3 * x.nbytes


class Adding:
    """Adds one to what it is sent."""

    initial_exchange = False
    reports: frozenset[str] = frozenset()

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"x": Spec(broadcast["x"].shape, "float64")}

    def local(self, job: Job) -> Result:
        return Result(job.client, {"x": job.broadcast["x"] + 1})


@pytest.mark.parametrize("release", [False, True])
def test_a_broadcast_is_released_once_its_worker_has_it(release: bool):
    build: Any = Adding
    with WorkerPool(build, 1) as workers:
        workers.release = release
        for number in range(3):
            broadcast: Tensors = {"x": np.full(100_000, float(number))}
            (result,) = workers.run([Job(0, broadcast, None, 0)])
            assert isinstance(result, Result)
            assert (result.update["x"] == number + 1).all()
            assert (broadcast == {}) == release


def test_a_worker_uses_a_broadcast_again_that_it_has():
    build: Any = Adding
    broadcast: Tensors = {"x": np.full(100_000, 3.0)}
    with WorkerPool(build, 1) as workers:
        for result in workers.run([Job(client, broadcast, None, 0) for client in range(3)]):
            assert isinstance(result, Result)
            assert (result.update["x"] == 4).all()
