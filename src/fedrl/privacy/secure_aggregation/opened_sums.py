"""Which sums a node has helped to open: on its disk, so that no two sums differ by a client.

Of two sums over alike updates, one with and one without a client, the difference is that client's
update. The driver chooses everything that could tell two sums apart: the run's name, the recipe,
the seed, the round and the broadcast, of which a changed last bit makes another one. It does not
choose who the clients are. So a node opens sums of one set of clients, whatever they are of, and
writes the set down before its first answer leaves. More than half of the clients of a sum must
answer, so one that remembers is among those who are asked for a smaller one.

Of these clients it opens one sum per recipe, round and attempt, whatever the broadcast and the
run's name: nothing can be asked of one client in two ways. A run that is resumed repeats
rounds, and goes on with their next attempts, which have other seeds for everybody. Rounds that
follow each other are one line of the memory, so that nothing of it is ever forgotten.

Other sets are for nodes whose owners said so: with an ε of its own a node counts what it tells
(`client_ledger.py`) and needs no memory here. One that lets its sums regroup (`fedrl flower node
--regroup`) only opens no job for two sets that it would answer alike to the bit: same seed and
broadcast, as when a killed driver is resumed. That holds against accidents, not against a driver
that lies.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from fedrl.core.private_files import StateError, locked, write_private
from fedrl.core.types import JsonValue
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

LAST = 1000
"""Jobs that are remembered; between a round and its repetition by a resumed run lie far fewer."""
JOBS, CLIENTS, ROUNDS = "jobs", "clients", "rounds"


class Asked(NamedTuple):
    """What may be opened once; the recipe is known by its digest."""

    recipe: str
    round: int
    attempt: int


class Memory(NamedTuple):
    """The clients of each job that was opened, those of all jobs, and the rounds that were opened,
    first and last, by recipe and attempt."""

    jobs: dict[str, list[int]]
    clients: list[int]
    rounds: dict[str, list[list[int]]]


class OpenedSums:
    """What a client remembers of the sums that it helped to open, in a file of its own."""

    def __init__(self, path: Path, regroup: bool = False) -> None:
        self.path, self.regroup = path, regroup

    def check(self, asked: Asked) -> None:
        """Refuse what `add` would refuse of any clients, before anything is computed."""
        with locked(self.path.parent):
            self._check(self._memory(), asked)

    def add(self, job: str, survivors: Collection[int], asked: Asked) -> None:
        """Remember that the sum of these is opened, unless it was, or others were, before."""
        those = sorted(survivors)
        with locked(self.path.parent):
            known = self._memory()
            jobs, clients, rounds = known
            if jobs.pop(job, those) != those:
                raise ProtocolError("it has opened the sum of this job for another set of clients")
            if not self.regroup and (clients or those) != those:
                raise ProtocolError(
                    f"its sums are of clients {', '.join(map(str, clients))} and no others, since "
                    "two that differ give clients away (an ε of its own, or --regroup, allows it)"
                )
            self._check(known, asked)
            jobs[job] = those
            if not self.regroup:
                clients = those
                rounds[_line(asked)] = _with(rounds.get(_line(asked), []), asked.round)
            memory = Memory(dict(list(jobs.items())[-LAST:]), clients, rounds)
            write_private(self.path, json.dumps(memory._asdict()).encode())

    def _check(self, known: Memory, asked: Asked) -> None:
        spans = known.rounds.get(_line(asked), [])
        if not self.regroup and any(first <= asked.round <= last for first, last in spans):
            raise ProtocolError(
                f"it has opened round {asked.round}, attempt {asked.attempt + 1} of this recipe "
                "before: a resumed run needs federation.retries left, a new one another --seed"
            )

    def _memory(self) -> Memory:
        try:
            data = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return Memory({}, [], {})
        except ValueError:
            data = None
        if isinstance(data, dict) and data and CLIENTS not in data:  # of an earlier version
            data = {JOBS: data, CLIENTS: list(data.values())[-1]}
        if isinstance(data, dict) and set(data) == {JOBS, CLIENTS}:  # of the one after it
            data |= {ROUNDS: {}}
        if (
            not isinstance(data, dict)
            or set(data) != {JOBS, CLIENTS, ROUNDS}
            or not isinstance(data[JOBS], dict)
            or not _numbers(data[CLIENTS])
            or not all(_numbers(those) for those in data[JOBS].values())
            or not isinstance(data[ROUNDS], dict)
            or not all(_spans(spans) for spans in data[ROUNDS].values())
        ):
            raise StateError("what it knows of sums that were opened is damaged")
        return Memory(**data)


def _line(asked: Asked) -> str:
    return f"{asked.recipe} {asked.attempt}"


def _with(spans: list[list[int]], round: int) -> list[list[int]]:
    """First and last rounds of spans, with one round more; neighbours become one span."""
    joined: list[list[int]] = []
    for first, last in sorted([*spans, [round, round]]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    return joined


def _numbers(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(number, int) for number in value)


def _spans(value: JsonValue) -> bool:
    return isinstance(value, list) and all(
        isinstance(span, list) and _numbers(span) and len(span) == 2 for span in value
    )
