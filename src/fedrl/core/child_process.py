"""Child processes that end with their parent, also when it is killed.

On Linux the kernel ends them; elsewhere a parent that is killed leaves them behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):  # else it died before that line
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Asks the kernel in the child itself: a parent with threads may hang between fork and exec."""
STOP_SECONDS = 10.0


def python() -> list[str]:
    """The beginning of a command, before Python's own options."""
    if sys.platform != "linux":
        return [sys.executable]
    return [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid())]


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask all to end, then make those that have not."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
