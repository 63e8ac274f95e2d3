"""A node's own ε: what it has answered, on its disk, charged before each answer leaves.

A node whose own flags name `privacy.epsilon` counts itself, whatever run, driver or recipe asks: an
answer with noise z, or its part of a sum with that noise, is a Gaussian mechanism with multiplier
z/2, and all of them together are one (`accounting.composed_view`). What would go beyond its ε is
refused, and so is a job that it has answered before: new noise on the same update averages out.

    ledger.jsonl   a line per answer, only ever appended to (`core/chained_lines.py`)
    ledger.head    how many lines there are and the hash of the last

A kill between the two leaves a line more than the head says, or the beginning of one: the answer
was not sent, a whole line counts all the same. Fewer lines, other ones, or one file without the
other are damage: the node then answers nothing, because it does not know what it has told.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedrl.core.chained_lines import ChainedLines, Tail
from fedrl.core.private_files import StateError, locked
from fedrl.core.types import Json
from fedrl.privacy import accounting
from fedrl.privacy.secure_aggregation.protocol import ProtocolError


@dataclass(frozen=True)
class Budget:
    """A node's own ε at δ, and what an answer to a recipe costs of it.

    `noise` is z of what the driver sees, an update or a sum. `part` is that of this client's noise
    alone, which is all that a sum has for sure if its other clients may be the driver's invention.
    """

    epsilon: float
    delta: float
    noise: float
    part: float


class Charge(NamedTuple):
    job: str
    noise: float


class Spent(NamedTuple):
    """What a node has told so far: ε at its δ, of so many answers."""

    epsilon: float
    answers: int


class Ledger:
    """A node's own ε at δ, of all answers that its folder has counted."""

    def __init__(self, folder: Path, epsilon: float, delta: float) -> None:
        self.folder = folder
        self.epsilon, self.delta = epsilon, delta
        self._lines = ChainedLines(folder, "ledger")

    def spent(self) -> Spent:
        with locked(self.folder):
            known, _ = self._charges()
        return Spent(accounting.composed_view((c.noise for c in known), self.delta), len(known))

    def check(self, job: str, noise: float) -> None:
        """Refuse what `charge` would refuse, before anything is computed."""
        with locked(self.folder):
            self._admit(self._charges()[0], Charge(job, noise))

    def charge(self, job: str, noise: float) -> None:
        """On disk when this returns; the answer may leave then and not before."""
        with locked(self.folder):
            known, tail = self._charges()
            new = Charge(job, noise)
            self._admit(known, new)
            self._lines.append(new._asdict(), tail)

    def _admit(self, known: list[Charge], new: Charge) -> None:
        if any(new.job == one.job for one in known):
            raise ProtocolError("it has answered this job before, and gives no new noise on it")
        epsilon = accounting.composed_view([*(c.noise for c in known), new.noise], self.delta)
        if not epsilon <= self.epsilon:
            raise ProtocolError(
                f"its own ε would be {epsilon:.4g}, above its privacy.epsilon = {self.epsilon:g}"
            )

    def _charges(self) -> tuple[list[Charge], Tail]:
        """All charges, and where the next one goes."""
        read = self._lines.read()
        if read.damage:
            raise _damaged()
        return [_charge(entry) for entry in read.entries], read.tail


def job_name(seed: int, broadcast: str) -> str:
    """A job is known by what its update follows from; the run and its tags have other names."""
    return hashlib.sha256(f"{seed} {broadcast}".encode()).hexdigest()


def _charge(entry: Json) -> Charge:
    try:
        return Charge(str(entry["job"]), float(entry["noise"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged() from error


def _damaged() -> StateError:
    return StateError("its ledger of what it has answered is damaged or incomplete")
