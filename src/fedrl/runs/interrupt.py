"""Ctrl-C that is heard: Python drops a KeyboardInterrupt that arrives in the wrong place.

An exception raised inside a finalizer or a callback from compiled code is printed or swallowed, and
the run would go on. So the signal is also remembered, and asked about after every round.

A job in the background of a script has SIGINT ignored. It is stopped by SIGTERM, as schedulers do,
and ends in the same way.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """While active, SIGINT and SIGTERM stop what is done here as KeyboardInterrupt.

    Signals are the main thread's business: in another one this does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in (signal.SIGINT, signal.SIGTERM):
            # SIGINT may be ignored on purpose (a background job of a shell): leave it so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt

    def check(self, _: object = None) -> None:
        """An observer of rounds: the stop that nobody has heard yet."""
        if self.asked:
            raise KeyboardInterrupt
