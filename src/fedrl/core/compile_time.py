"""Seconds that this process has spent compiling, as JAX, numba and torch tell them.

The first rounds of a run compile what later ones use. Who compares the time of methods wants that
apart. These libraries tell how long they compiled; nothing is guessed from rounds that took longer.
Tracing and lowering of JAX count, and what is read from a cache of compiled programs counts as long
as that takes. Of `torch.compile` all counts, from a function's tracing to its kernels, the backward
pass's when that is reached. CUDA graphs of ours are recorded, not compiled: they stay the round's.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

JAX_EVENTS = "/jax/core/compile/"
NUMBA_EVENT = "numba:compile"


class CompileTime:
    """The union of spans of time: compiling inside of compiling counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._spans: list[tuple[float, float]] = []  # the last ones: a longer one may contain them
        self._lock = threading.Lock()

    def add(self, begin: float, end: float) -> None:
        with self._lock:
            while self._spans and self._spans[-1][0] >= begin:
                inner = self._spans.pop()
                self.seconds -= inner[1] - inner[0]
            if self._spans:
                begin = max(begin, self._spans[-1][1])
            if end > begin:
                self._spans.append((begin, end))
                self.seconds += end - begin


TOTAL = CompileTime()
_listening: set[str] = set()


def compile_seconds() -> float:
    """Until now. The first call after a library was imported begins to listen to it."""
    if "jax" in sys.modules and "jax" not in _listening:
        _listening.add("jax")
        _listen_to_jax()
    if "numba" in sys.modules and "numba" not in _listening:
        _listening.add("numba")
        _listen_to_numba()
    if "torch._dynamo" in sys.modules and "torch" not in _listening:
        _listening.add("torch")
        _listen_to_torch()
    return TOTAL.seconds


def _listen_to_jax() -> None:
    import jax

    def ended(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith(JAX_EVENTS):
            now = time.perf_counter()
            TOTAL.add(now - duration_secs, now)

    jax.monitoring.register_event_duration_secs_listener(ended)


def _listen_to_numba() -> None:
    from numba.core import event

    class Compiling(event.Listener):
        def __init__(self) -> None:
            self.begun: list[float] = []

        def on_start(self, _: Any) -> None:
            self.begun.append(time.perf_counter())

        def on_end(self, _: Any) -> None:
            TOTAL.add(self.begun.pop(), time.perf_counter())

    event.register(NUMBA_EVENT, Compiling())


def _listen_to_torch() -> None:
    """Torch tells when it begins while nothing compiles, and when all of that has ended."""
    from torch._dynamo import callback

    begun: list[float] = []

    def started(*_: Any) -> None:
        begun.append(time.perf_counter())

    def ended(*_: Any) -> None:
        if begun:  # else it had begun before somebody listened
            TOTAL.add(begun.pop(), time.perf_counter())

    callback.on_compile_start(started)
    callback.on_compile_end(ended)
