"""What the driver says while it waits for a SuperLink or for nodes: at once, then ever more seldom.

    waiting for client 1 (south): 1 of 3 nodes has not come yet (1 s of 2 min 00 s, flower.wait)
    waiting for client 1 (south): 1 of 3 nodes has not come yet (30 s of 2 min 00 s, flower.wait)
    all nodes that were awaited are here, after 41 s

A run that says nothing for minutes looks like one that hangs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from fedrl.core.number_format import duration
from fedrl.engines.flower.registered import Registered

FIRST_SECONDS = 1.0
"""What comes within these is not worth a line."""
AGAIN_SECONDS, SELDOM_SECONDS = 30.0, 300.0
"""When a line is said once more, then after twice the time, and at least how often."""
MOST_NAMES = 5


class Reminder:
    """Of one wait, when to say a line: when it is new, and now and then while it stays true."""

    def __init__(self) -> None:
        self._line, self._next, self._pause = "", 0.0, 0.0

    def due(self, line: str) -> bool:
        now = time.monotonic()
        if line != self._line:
            self._line, self._pause = line, AGAIN_SECONDS
        elif now >= self._next:
            self._pause = min(2 * self._pause, SELDOM_SECONDS)
        else:
            return False
        self._next = now + self._pause
        return True


@contextlib.contextmanager
def said_if_slow(line: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Where this thread cannot speak, because it waits inside somebody else's call."""
    timer = threading.Timer(FIRST_SECONDS, warn, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class AwaitedNodes:
    """Who has not come yet; told after every look at the nodes that are connected."""

    def __init__(self, warn: Callable[[str], None], registered: Registered | None) -> None:
        self.warn, self.registered = warn, registered
        self._began: float | None = None
        self._told: set[int] = set()  # clients of whom it was said that they are awaited
        self._reminder = Reminder()

    def looked(
        self, until: Mapping[int, float], awaited: Collection[int], here: Collection[int], mute: int
    ) -> None:
        """`until` are the clients that are wanted, each up to its moment, `here` those whose nodes
        are known, `mute` counts connected nodes that have not said whose they are."""
        now = time.monotonic()
        hopeful = {client for client in awaited if now < until[client]}
        self._ended(self._told & until.keys() - hopeful, here, now)
        if not hopeful:
            self._began = None
            return
        if self._began is None:
            self._began, self._reminder = now, Reminder()
        if now - self._began < FIRST_SECONDS:
            return
        count = f"{len(hopeful)} of {len(until)} nodes {'has' if len(hopeful) == 1 else 'have'}"
        line = f"waiting for {self._names(hopeful)}: {count} not come yet"
        if mute:
            one = "one is connected and has not said which client's it is"
            several = f"{mute} are connected and have not said which clients' they are"
            line += f"; {one if mute == 1 else several}"
        if self._reminder.due("nodes"):
            limit = max(until[client] for client in hopeful) - self._began
            spent = f"{_time(now - self._began)} of {_time(limit)}, flower.wait"
            self.warn(f"{line} ({spent}){self._unregistered(hopeful)}")
            self._told |= hopeful

    def _ended(self, over: set[int], here: Collection[int], now: float) -> None:
        """Whoever was said to be awaited has come, or is given up."""
        if not over:
            return
        self._told -= over
        after = "" if self._began is None else f", after {_time(now - self._began)}"
        if absent := over - set(here):
            whose = "its node" if len(absent) == 1 else "their nodes"
            self.warn(f"no longer waiting for {self._names(absent)}{after}: {whose} did not come")
        elif not self._told:
            self.warn(f"all nodes that were awaited are here{after}")

    def _unregistered(self, clients: Collection[int]) -> str:
        """Recipes are written for some number of clients, and organisations are as many as come."""
        known = [] if self.registered is None else list(self.registered.clients())
        if not set(clients) - set(known) or known != list(range(len(known))) or not known:
            return ""
        keys = "1 key is" if len(known) == 1 else f"{len(known)} keys are"
        return (
            f"; the recipe has more clients, and {keys} registered: --federation.clients "
            f"{len(known)}"
        )

    def _names(self, clients: Collection[int]) -> str:
        first = sorted(clients)[:MOST_NAMES]
        known = {} if self.registered is None else self.registered.clients()
        names = []
        for client in first:
            name = "" if self.registered is None else self.registered.name(client)
            if self.registered is not None and client not in known:
                name = "whose key is not registered: fedrl flower register"
            names.append(f"client {client} ({name})" if name else f"client {client}")
        if len(clients) > len(first):
            names.append(f"{len(clients) - len(first)} more")
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _time(seconds: float) -> str:
    return duration(round(seconds))
