"""Lines for the organisation that runs a part of a federation: on its own machine, for its eyes."""

from __future__ import annotations

import sys
import time


def say(line: str) -> None:
    """For the organisation that runs the node; nothing of it travels.

    Names in it may be the coordinator's, which must not write lines of their own here.
    """
    printable = "".join(c if c.isprintable() else " " for c in line)
    print(f"{time.strftime('%H:%M:%S')} {printable}", file=sys.stderr, flush=True)
