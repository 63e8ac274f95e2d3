"""Compiled programs that nobody needs any more, in a process that does one run after another.

XLA maps every program that it compiles into memory and keeps it for as long as the process lives.
Linux allows a process some 65,000 maps; at the next one LLVM ends the process without a word of
Python's, after some eighty runs whose settings differ.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

MAPS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")
SHARE = 0.25
"""Of the limit. One run needs a few hundred to some thousand maps."""


def release_if_crowded(share: float = SHARE) -> bool:
    """Between two runs: let go of what JAX has compiled if the process has more than this share of
    the maps that it may have. What is needed again is compiled again, or read from JAX's cache."""
    if "jax" not in sys.modules or not (MAPS.exists() and LIMIT.exists()):
        return False
    with MAPS.open("rb") as lines:
        maps = sum(1 for _ in lines)
    if maps <= share * int(LIMIT.read_text()):
        return False
    sys.modules["jax"].clear_caches()
    gc.collect()  # programs are held in cycles
    return True
