"""Tracebacks of a run on one's own machine: in its log.txt, the first one on the terminal, too.

A client's record, and what leaves a client on Flower, is one line as ever (`in_process.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from fedrl.core.types import UserError
from fedrl.engines.in_process import trace
from fedrl.runs.client_names import client_name

MOST = 20
"""Different ones that are logged: after that, whoever has to read them has enough."""


class ErrorLog:
    """`say` writes to the log, `note` to the terminal."""

    def __init__(
        self,
        say: Callable[[str], None],
        note: Callable[[str], None],
        names: Sequence[str] = (),
    ) -> None:
        self.say, self.note, self.names = say, note, names
        self.seen: set[str] = set()

    def failed(self, client: int, text: str) -> None:
        """A client's work has raised; in the same place again, of any client, is not news."""
        place = text.rpartition("\n")[0]
        if place in self.seen or len(self.seen) >= MOST:
            return
        who = client_name(client, self.names)
        if not self.seen:
            self.note(f"{who} failed (log.txt has it, and what may follow):\n{text}")
        self.seen.add(place)
        with contextlib.suppress(UserError):  # of a full disk
            self.say(f"{who} failed:\n{text}")

    def stopped(self, error: BaseException) -> None:
        """The run ends with this: where an error of the program, or behind a user's, came from."""
        cause = error.__cause__ if isinstance(error, UserError) else error
        if isinstance(cause, Exception):
            self.say(trace(cause, text=True))
