"""Why clients give no update, said while there is time to do something about it.

round 1: client 1 (south) gave no update: privacy.noise is below 1 (noise)
round 1: client 4, client 7 gave no update: no answer within the deadline of 60 s

At the end of a run `absent_clients.py` counts; here a reason is said once of each client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fedrl.federation.round_loop import Round
from fedrl.runs.absent_clients import label_of

MOST = 20
"""Lines of a run: where ever more clients fail, clients.jsonl has them."""
MOST_CLIENTS = 10
"""Named in a line; more are counted."""
NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
"""A reason with other seconds or sizes in it is no other one."""


class FailureReasons:
    """An observer of rounds: says a client's reason when it first fails, and a new one."""

    def __init__(
        self, warn: Callable[[str], None], engine: object = None, names: Sequence[str] = ()
    ) -> None:
        self.warn = warn
        self.label = label_of(engine, names)
        self.told: set[tuple[int, str]] = set()
        self.lines = 0

    def __call__(self, done: Round) -> None:
        news: dict[str, list[int]] = {}
        last = max((record.get("attempt", 0) for record in done.clients), default=0)
        for record in done.clients:
            if record.get("status") == "failed":
                client, reason = int(record["client"]), str(record.get("reason", ""))
                known = (client, NUMBER.sub("#", reason))
                # Who was in the way of an attempt that was given up, the round loop has said.
                if known not in self.told and record.get("attempt", 0) == last:
                    news.setdefault(reason, []).append(client)
                self.told.add(known)
        for reason, clients in news.items():
            if self.lines < MOST:
                self.warn(f"round {done.round}: {self._who(clients)} gave no update: {reason}")
            elif self.lines == MOST:
                self.warn(f"round {done.round}: more clients fail; clients.jsonl says why")
            self.lines += 1

    def _who(self, clients: list[int]) -> str:
        named = ", ".join(self.label(client) for client in clients[:MOST_CLIENTS])
        rest = len(clients) - MOST_CLIENTS
        return f"{named} and {rest} more" if rest > 0 else named
