"""Which sums a node has helped to open: on its disk, so that no job is opened for two sets.

A job that is asked again gives the same update. If its sum were opened once with and once without
one of the clients, the difference would be that client's update. So a node writes down for whom it
opened a job's sum before its answer leaves, and opens the same job for nobody else. More than half
of the clients must answer, so at least one that remembers is among those who are asked again.

A job is known by its seed and its broadcast alone. The run's name and the state's tag are left out,
because a run that is repeated has others with the same content. With another seed, as in the next
attempt of a round, it is another job.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from fedrl.engines.flower.states import StateError, write
from fedrl.privacy.secure.protocol import ProtocolError

LAST = 1000
"""Sums that are remembered; between a round and its repetition by a resumed run lie far fewer."""


class Opened:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, job: str, survivors: Collection[int]) -> None:
        """Remember that the sum of these is opened, unless it was that of others before."""
        known = self._read()
        those = sorted(survivors)
        if known.pop(job, those) != those:
            raise ProtocolError("it has opened the sum of this job for another set of clients")
        known[job] = those
        last = dict(list(known.items())[-LAST:])
        write(self.path, json.dumps(last).encode())

    def _read(self) -> dict[str, list[int]]:
        try:
            found = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StateError("what it knows of sums that were opened is damaged")
        return found
