"""A first word while large packages are imported, which may take ten seconds and say nothing.

Commands import what they need when they need it, at many places. So it is noticed where every
import passes, and said only of one that goes on for a while.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any

LARGE = {"torch": "PyTorch", "transformers": "transformers", "jax": "JAX", "vllm": "vLLM"}
SECONDS = 0.7
"""After which an import that goes on is told."""


class Watch(MetaPathFinder):
    """Finds nothing: it sees that a large package is looked for, and looks again a moment later."""

    def __init__(self) -> None:
        self.said: set[str] = set()  # it may be looked for several times before it is imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in LARGE and name not in sys.modules:
            timer = threading.Timer(SECONDS, say_if_loading, (name, self.said))
            timer.daemon = True
            timer.start()


def say_if_loading(name: str, said: set[str]) -> None:
    """Of a package that was only looked for, or is there by now, there is nothing to say."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    loading = getattr(spec, "_initializing", False) and name not in said
    if loading and sys.stderr is not None:
        said.add(name)
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more
            print(f"loading {LARGE[name]} …", file=sys.stderr, flush=True)


@contextmanager
def told() -> Iterator[None]:
    """Within it, imports that take long are told."""
    watch = Watch()
    sys.meta_path.insert(0, watch)
    try:
        yield
    finally:
        sys.meta_path.remove(watch)
