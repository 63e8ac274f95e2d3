"""Who was asked and did not take part, at the end of a run: it finishes without them all the same.

client 1 (south) took part in no round: privacy.secure: this node sends updates only into …
client 2 (west) took part in 2 of 3 rounds: no answer within the deadline of 60 s
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from fedrl.runs import read
from fedrl.runs.client_names import client_name
from fedrl.runs.model_card_clients import counted

MOST_LINES = 10
DAMAGED = "its lines in clients.jsonl are damaged"


@runtime_checkable
class NamesClients(Protocol):
    """An engine whose clients are members with names."""

    def label(self, client: int) -> str: ...


def label_of(engine: object, names: Sequence[str]) -> Callable[[int], str]:
    """What an engine calls its clients; else by the names that a simulation knows."""
    if isinstance(engine, NamesClients):
        return engine.label
    return partial(client_name, names=names)


def absent_clients(
    path: Path, last: int, engine: object = None, names: Sequence[str] = ()
) -> list[str]:
    """Of a run up to its last round, also of before it was resumed: a line for each client that
    failed, with the last reason, and those who gave nothing first."""
    label = label_of(engine, names)
    records = read.client_records(path)
    asked, answered, why = Counter[int](), Counter[int](), dict[int, str]()
    for (_, client), good in counted(records, last).items():
        asked[client] += 1
        answered[client] += good
    for record in records:
        if record.get("status") == "failed":
            why[int(record["client"])] = str(record.get("reason", ""))
    missed = [client for client in asked if answered[client] < asked[client]]
    missed.sort(key=lambda client: (answered[client] / asked[client], client))
    lines = [
        f"{label(client)} took part in {_rounds(answered[client], asked[client])}: "
        f"{why.get(client, DAMAGED)}"
        for client in missed[:MOST_LINES]
    ]
    rest = len(missed) - len(lines)
    return [*lines, f"{rest} more clients missed rounds (clients.jsonl)"] if rest else lines


def _rounds(answered: int, asked: int) -> str:
    return f"{answered} of {asked} rounds" if answered else "no round"
