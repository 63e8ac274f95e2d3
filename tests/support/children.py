"""Python in a process of its own, which ends with the test, however that ends.

`with subprocess.Popen(…)` waits for its process: a test that fails would wait for ever.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

IGNORING = """
import os, signal, sys
for name in sys.argv[1].split(","):
    signal.signal(signal.Signals[name], signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@contextmanager
def python(*words: str, ignores: str = "", **options) -> Iterator[subprocess.Popen]:
    """`python words…`; `ignores` names signals that it ignores from its start, with commas.

    Others have the default: `conftest` sees to it that no test inherits an ignored Ctrl-C.
    """
    first = ["-I", "-S", "-c", IGNORING, ignores] if ignores else []
    process = subprocess.Popen([sys.executable, *first, *words], **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
