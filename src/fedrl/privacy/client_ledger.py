"""A node's own ε: what it has answered, on its disk, charged before each answer leaves.

A node whose own flags name `privacy.epsilon` counts itself, whatever run, driver or recipe asks: an
answer with noise z, or its part of a sum with that noise, is a Gaussian mechanism with multiplier
z/2, and all of them together are one (`accounting.composed_view`). What would go beyond its ε is
refused, and so is a job that it has answered before: new noise on the same update averages out.

    ledger.jsonl   a line per answer, only ever appended to; each has the hash of all before it
    ledger.head    how many lines there are and the hash of the last, written anew after each

A kill between the two leaves a line more than the head says, or the beginning of one: the answer
was not sent, a whole line counts all the same. Fewer lines, other ones, or one file without the
other are damage: the node then answers nothing, because it does not know what it has told.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedrl.core.private_files import StateError, locked, write_private
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


class Ledger:
    def __init__(self, folder: Path, epsilon: float, delta: float) -> None:
        self.folder = folder
        self.epsilon, self.delta = epsilon, delta
        self._lines, self._head = folder / "ledger.jsonl", folder / "ledger.head"

    def check(self, job: str, noise: float) -> None:
        """Refuse what `charge` would refuse, before anything is computed."""
        with locked(self.folder):
            self._admit(self._charges()[0], Charge(job, noise))

    def charge(self, job: str, noise: float) -> None:
        """On disk when this returns; the answer may leave then and not before."""
        with locked(self.folder):
            known, chain, length = self._charges()
            new = Charge(job, noise)
            self._admit(known, new)
            line, chain = _line(new, chain)
            self._append(line, length)
            write_private(self._head, f"{len(known) + 1} {chain}\n".encode())

    def _admit(self, known: list[Charge], new: Charge) -> None:
        if any(new.job == one.job for one in known):
            raise ProtocolError("it has answered this job before, and gives no new noise on it")
        epsilon = accounting.composed_view([*(c.noise for c in known), new.noise], self.delta)
        if not epsilon <= self.epsilon:
            raise ProtocolError(
                f"its own ε would be {epsilon:.4g}, above its privacy.epsilon = {self.epsilon:g}"
            )

    def _append(self, line: bytes, length: int) -> None:
        descriptor = os.open(self._lines, os.O_WRONLY | os.O_CREAT, 0o600)
        with open(descriptor, "wb") as file:
            file.truncate(length)  # of a line that a kill cut short
            file.seek(length)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _charges(self) -> tuple[list[Charge], str, int]:
        """All charges, the last hash, and the length of the whole lines."""
        count, last = self._head_line()
        try:
            data = self._lines.read_bytes()
        except FileNotFoundError:
            data = b""
        length = data.rfind(b"\n") + 1
        charges, chains = [], [""]
        for line in data[:length].splitlines(keepends=True):
            charge = _charge(line)
            right, chain = _line(charge, chains[-1])
            if right != line:
                raise _damaged()
            charges.append(charge)
            chains.append(chain)
        # One line more than the head knows is that of a kill in between.
        if len(charges) - count not in (0, 1) or chains[count] != last:
            raise _damaged()
        return charges, chains[-1], length

    def _head_line(self) -> tuple[int, str]:
        try:
            count, chain = self._head.read_text(encoding="ascii").split()
            return int(count), chain
        except FileNotFoundError:
            return 0, ""
        except ValueError as error:
            raise _damaged() from error


def job_name(seed: int, broadcast: str) -> str:
    """A job is known by what its update follows from; the run and its tags have other names."""
    return hashlib.sha256(f"{seed} {broadcast}".encode()).hexdigest()


def _line(charge: Charge, before: str) -> tuple[bytes, str]:
    """With the hash of everything up to it."""
    text = json.dumps({"job": charge.job, "noise": charge.noise})
    chain = hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()
    line = json.dumps({"job": charge.job, "noise": charge.noise, "chain": chain})
    return line.encode() + b"\n", chain


def _charge(line: bytes) -> Charge:
    try:
        charge = json.loads(line)
        return Charge(str(charge["job"]), float(charge["noise"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged() from error


def _damaged() -> StateError:
    return StateError("its ledger of what it has answered is damaged or incomplete")
