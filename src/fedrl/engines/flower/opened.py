"""Which sums a node has helped to open: on its disk, so that no two sums differ by a client.

Of two sums over alike updates, one with and one without a client, the difference is that client's
update. The driver chooses everything that could tell two sums apart: the run's name, the recipe,
the seed, the round and the broadcast, of which a changed last bit makes another one. It does not
choose who the clients are. So a node opens sums of one set of clients, whatever they are of, and
writes the set down before its first answer leaves. More than half of the clients of a sum must
answer, so one that remembers is among those who are asked for a smaller one.

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
from typing import Any

from fedrl.engines.flower.ledger import locked
from fedrl.engines.flower.states import StateError, write
from fedrl.privacy.secure.protocol import ProtocolError

LAST = 1000
"""Jobs that are remembered; between a round and its repetition by a resumed run lie far fewer."""
JOBS, CLIENTS = "jobs", "clients"


class Opened:
    def __init__(self, path: Path, regroup: bool = False) -> None:
        self.path, self.regroup = path, regroup

    def add(self, job: str, survivors: Collection[int]) -> None:
        """Remember that the sum of these is opened, unless others were before."""
        those = sorted(survivors)
        with locked(self.path.parent):
            known = self._read()
            jobs, clients = known[JOBS], known[CLIENTS]
            if jobs.pop(job, those) != those:
                raise ProtocolError("it has opened the sum of this job for another set of clients")
            if not self.regroup and (clients or those) != those:
                raise ProtocolError(
                    f"its sums are of clients {', '.join(map(str, clients))} and no others, since "
                    "two that differ give clients away (an ε of its own, or --regroup, allows it)"
                )
            jobs[job] = those
            last = dict(list(jobs.items())[-LAST:])
            told = {JOBS: last, CLIENTS: those if not self.regroup else clients}
            write(self.path, json.dumps(told).encode())

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {JOBS: {}, CLIENTS: []}
        except ValueError:
            found = None
        if isinstance(found, dict) and found and CLIENTS not in found:  # of an earlier version
            found = {JOBS: found, CLIENTS: list(found.values())[-1]}
        if (
            not isinstance(found, dict)
            or set(found) != {JOBS, CLIENTS}
            or not isinstance(found[JOBS], dict)
            or not _numbers(found[CLIENTS])
            or not all(_numbers(those) for those in found[JOBS].values())
        ):
            raise StateError("what it knows of sums that were opened is damaged")
        return found


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(number, int) for number in value)
