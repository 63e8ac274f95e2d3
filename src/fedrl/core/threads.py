"""Thread counts, set where they count: before the libraries that read them are imported.

Federated rounds are many small tensors. A thread pool per library and process, each as wide as the
machine, makes them several times slower, so every process computes on one thread unless told
otherwise; parallelism comes from worker processes and from kernels that ask for threads.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SINGLE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def pin() -> None:
    """One thread per library in this process, where the user has not said otherwise.

    Compiled JAX programs are kept between runs, which makes a run start in seconds.
    """
    wanted = SINGLE | {
        "JAX_COMPILATION_CACHE_DIR": str(compiled_programs()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    for name, value in wanted.items():
        os.environ.setdefault(name, value)


def compiled_programs() -> Path:
    """A folder per kind of processor: a home may be shared by machines that differ."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.is_file() else platform.processor()
    kind = [line for line in text.splitlines() if line.startswith(("model name", "flags"))][:2]
    return cache / "fedrl" / f"jax-{hashlib.sha256(''.join(kind).encode()).hexdigest()[:8]}"


@contextmanager
def pinned_children() -> Iterator[None]:
    """Processes started inside compute on one thread, numba's parallel loops included.

    They do not look for modules in the current folder (`python -P`): whatever lies there, a
    `numpy.py` say, would be executed.
    """
    wanted = SINGLE | {"NUMBA_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
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


def kernel_threads() -> int:
    """Threads that compiled kernels may use at once: the cores, or one in a pinned child."""
    return int(os.environ.get("NUMBA_NUM_THREADS") or os.cpu_count() or 1)
