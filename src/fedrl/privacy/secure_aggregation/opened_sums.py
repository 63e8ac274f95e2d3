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
(`ledger.py`) and needs no memory here. One that lets its sums regroup (`fedrl flower node
--regroup`) only opens no job for two sets that it would answer alike to the bit: same seed and
broadcast, as when a killed driver is resumed. That holds against accidents, not against a driver
that lies.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from fedrl.core.private_files import StateError, locked, write_private
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

LAST = 1000
"""Jobs that are remembered; between a round and its repetition by a resumed run lie far fewer."""
JOBS, CLIENTS, ROUNDS = "jobs", "clients", "rounds"


class Asked(NamedTuple):
    """What may be opened once; the recipe is known by its digest."""

    recipe: str
    round: int
    attempt: int


class Opened:
    """`rounds` of the file are those that were opened, first and last, by recipe and attempt."""

    def __init__(self, path: Path, regroup: bool = False) -> None:
        self.path, self.regroup = path, regroup

    def check(self, asked: Asked) -> None:
        """Refuse what `add` would refuse of any clients, before anything is computed."""
        with locked(self.path.parent):
            self._check(self._read(), asked)

    def add(self, job: str, survivors: Collection[int], asked: Asked) -> None:
        """Remember that the sum of these is opened, unless it was, or others were, before."""
        those = sorted(survivors)
        with locked(self.path.parent):
            known = self._read()
            jobs, clients, rounds = known[JOBS], known[CLIENTS], known[ROUNDS]
            if jobs.pop(job, those) != those:
                raise ProtocolError("it has opened the sum of this job for another set of clients")
            if not self.regroup and (clients or those) != those:
                raise ProtocolError(
                    f"its sums are of clients {', '.join(map(str, clients))} and no others, since "
                    "two that differ give clients away (an ε of its own, or --regroup, allows it)"
                )
            self._check(known, asked)
            jobs[job] = those
            last = dict(list(jobs.items())[-LAST:])
            if not self.regroup:
                clients = those
                rounds[_line(asked)] = _with(rounds.get(_line(asked), []), asked.round)
            told = {JOBS: last, CLIENTS: clients, ROUNDS: rounds}
            write_private(self.path, json.dumps(told).encode())

    def _check(self, known: dict[str, Any], asked: Asked) -> None:
        spans = known[ROUNDS].get(_line(asked), [])
        if not self.regroup and any(first <= asked.round <= last for first, last in spans):
            raise ProtocolError(
                f"it has opened round {asked.round}, attempt {asked.attempt + 1} of this recipe "
                "before: a resumed run needs federation.retries left, a new one another --seed"
            )

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {JOBS: {}, CLIENTS: [], ROUNDS: {}}
        except ValueError:
            found = None
        if isinstance(found, dict) and found and CLIENTS not in found:  # of an earlier version
            found = {JOBS: found, CLIENTS: list(found.values())[-1]}
        if isinstance(found, dict) and set(found) == {JOBS, CLIENTS}:  # of the one after it
            found |= {ROUNDS: {}}
        if (
            not isinstance(found, dict)
            or set(found) != {JOBS, CLIENTS, ROUNDS}
            or not isinstance(found[JOBS], dict)
            or not _numbers(found[CLIENTS])
            or not all(_numbers(those) for those in found[JOBS].values())
            or not isinstance(found[ROUNDS], dict)
            or not all(_spans(spans) for spans in found[ROUNDS].values())
        ):
            raise StateError("what it knows of sums that were opened is damaged")
        return found


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


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(number, int) for number in value)


def _spans(value: Any) -> bool:
    return isinstance(value, list) and all(_numbers(span) and len(span) == 2 for span in value)
