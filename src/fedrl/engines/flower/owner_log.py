"""Lines for the organisation that runs a part of a federation: on its own machine, for its eyes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque

from fedrl.engines.in_process import one_line

MOST = 60
"""Lines and entries a minute of what anybody can cause."""


def say(line: str) -> None:
    """For the organisation that runs the node; nothing of it travels.

    Names in it may be the coordinator's, which must not write lines of their own here.
    """
    printable = "".join(c if c.isprintable() else " " for c in line)
    print(f"{time.strftime('%H:%M:%S')} {printable}", file=sys.stderr, flush=True)


def in_words(error: Exception) -> str:
    """For the owner of this machine; a full disk is no `OSError: [Errno 28]` to him."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        return f"{os.fsdecode(name)}: {error.strerror}" if name else error.strerror
    return one_line(error)


class Seldom:
    """What anybody can cause at no cost: so many a minute in full, the rest is counted."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.untold = 0
        self._when: deque[float] = deque()  # of the last minute
        self._lock = threading.Lock()

    def admits(self) -> bool:
        """Whether one more may be written in this minute; if not, it is counted."""
        now = time.monotonic()
        with self._lock:
            while self._when and now - self._when[0] >= 60:
                self._when.popleft()
            if len(self._when) >= self.most:
                self.untold += 1
                return False
            self._when.append(now)
            return True

    def say(self, line: str) -> None:
        if self.admits():
            untold, self.untold = self.untold, 0
            say(f"{line} (and {untold} more before it)" if untold else line)
