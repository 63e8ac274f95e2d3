"""Thread counts, set where they count: before the libraries that read them are imported.

Federated rounds are many small tensors. A thread pool per library and process, each as wide as the
machine, makes them several times slower, so every process computes on one thread unless told
otherwise; parallelism comes from worker processes and from kernels that ask for threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

SINGLE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def pin() -> None:
    """One thread per library in this process, where the user has not said otherwise."""
    for name, value in SINGLE.items():
        os.environ.setdefault(name, value)


@contextmanager
def pinned_children() -> Iterator[None]:
    """Processes started inside compute on one thread, numba's parallel loops included."""
    wanted = SINGLE | {"NUMBA_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
