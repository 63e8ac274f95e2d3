"""What a client keeps between its rounds, on its own disk; the server only learns a name for it.

The driver makes up a random tag for every message. A client's new state is filed under the tag of
the message that it answers, and the tag goes into the server's checkpoint in the state's place. So
the next job names the state that it starts from: a round that is tried again or resumed starts from
the same one. Old files are dropped once enough newer ones are there. What is newer is written in a
list of tags, in the order in which they were last used: clocks and times of files are not asked,
because a clock that was set back would make the newest state the oldest.

With a state of secure sums goes the hash of all jobs that it comes from, the same for all clients
who were asked the same: a node wants everybody in a sum to start from one history
(`secure_aggregation/client.py`).

Who asks decides how many states are kept and what runs are called. So a run has only so many, and
only so many runs have states: those of the run that was served the longest ago go first.

With every state goes what kind of run it is of: its method, world and privacy. The coordinator
names runs and tags, and must not have one recipe send what another left behind under a promise.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from pathlib import Path

from fedrl.core import serialization
from fedrl.core.private_files import StateError, write_private
from fedrl.core.types import Tensors
from fedrl.privacy.secure_aggregation.protocol import NO_HISTORY

NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}")
"""Of a run and of a tag: they come from the network and become names of files."""
ORDER = "order.txt"
"""Tags of a run's states, one a line, the one used last at the end; and above them, of runs."""
MOST_STATES, MOST_RUNS = 10_000, 100

HISTORY, ORIGIN = "fedrl history", "fedrl origin"
"""Names of that hash, and of the kind of run, among a state's tensors."""


class ClientStateStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, run: str, tag: str, origin: str | None = None) -> Tensors:
        """Refused if it is of another kind of run than `origin`, where that is given; a state of an
        earlier version has no kind."""
        path = self._path(run, tag)
        try:
            state = serialization.unpack(path.read_bytes())
        except FileNotFoundError as error:
            raise StateError("the state that its round starts from is not on its disk") from error
        except serialization.Damaged as error:
            raise StateError("the state that its round starts from is damaged") from error
        kind = state.pop(ORIGIN, origin)
        if origin is not None and kind != origin:
            raise StateError("the state that its round starts from is of other settings")
        # What rounds still start from is not old, however often they are tried.
        self._use(path.parent, tag)
        return state

    def save(
        self, run: str, tag: str, state: Tensors, keep: int, used: str | None, origin: str = ""
    ) -> None:
        """Then drop all but the `keep` newest and the one that was `used`."""
        path = self._path(run, tag)
        if keep > MOST_STATES:
            raise StateError(f"the job has it keep {keep} states; a node keeps {MOST_STATES:,}")
        self._make_room(run)
        # Before the file: one that is not in the list may be dropped, a tag without a file does
        # no harm.
        order = self._use(path.parent, tag)
        write_private(path, serialization.pack(state | {ORIGIN: origin}))
        newest = order[-max(keep, 1) :]
        if len(newest) < keep:  # files that are not in the list may be newer: theirs was lost
            return
        for old in _tags(path.parent) - {*newest, used}:
            (path.parent / f"{old}.safetensors").unlink()

    def _make_room(self, run: str) -> None:
        """For the states of this run, which is the latest from now on."""
        path = self.folder / ORDER
        listed = path.read_bytes().decode("ascii", "replace").split() if path.is_file() else []
        if listed[-1:] == [run]:
            return
        here = {place.name for place in self.folder.glob("*") if place.is_dir()} - {run}
        known = [one for one in dict.fromkeys(listed) if one in here]
        order = [*sorted(here - set(known)), *known, run]
        for old in order[:-MOST_RUNS]:
            shutil.rmtree(self.folder / old)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, "\n".join(order[-MOST_RUNS:]).encode())

    def _use(self, folder: Path, tag: str) -> list[str]:
        """The order of a run's tags, with this one as the newest from now on."""
        path = folder / ORDER
        listed = path.read_bytes().decode("ascii", "replace").split() if path.is_file() else []
        here = _tags(folder) - {tag}
        order = [*(known for known in dict.fromkeys(listed) if known in here), tag]
        write_private(path, "\n".join(order).encode())
        return order

    def _path(self, run: str, tag: str) -> Path:
        if not (NAME.fullmatch(run) and NAME.fullmatch(tag)):
            raise StateError("the job names no run and state that could be files")
        return self.folder / run / f"{tag}.safetensors"


def with_history(state: Tensors, before: bytes, job: bytes) -> Tensors:
    """For the disk: a state that comes from this job, and from what was before."""
    return state | {HISTORY: hashlib.sha256(before + job).hexdigest()}


def without_history(kept: Tensors | None) -> tuple[Tensors | None, bytes]:
    """A state as the client gave it, and its history.

    One of plain updates, or of an earlier version, has none that anybody could share.
    """
    if kept is None:
        return None, NO_HISTORY
    rest = {name: value for name, value in kept.items() if name != HISTORY}
    history = kept.get(HISTORY, secrets.token_hex(32))
    if not isinstance(history, str) or not re.fullmatch(r"[0-9a-f]{64}", history):
        raise StateError("the state that its round starts from is damaged")
    return rest, bytes.fromhex(history)


def _tags(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.safetensors")}
