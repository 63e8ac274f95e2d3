"""Fewer places where a process with many threads keeps memory that it has freed."""

from __future__ import annotations

import ctypes
import sys

M_ARENA_MAX = -8
ARENAS = 2


def limit() -> None:
    """Before threads begin. glibc gives each its own arena, eight for every core, and each keeps
    some of the pieces of messages that went through it; elsewhere nothing happens."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(M_ARENA_MAX, ARENAS)
