"""What a client keeps between its rounds, on its own disk; the server only learns a name for it.

The driver makes up a random tag for every message. A client's new state is filed under the tag of
the message that it answers, and the tag goes into the server's checkpoint in the state's place. So
the next job names the state that it starts from: a round that is tried again or resumed starts from
the same one. Old files are dropped once enough newer ones are there.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from fedrl.engines.flower import framing
from fedrl.files import write_atomically
from fedrl.types import Tensors

NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}")
"""Of a run and of a tag: they come from the network and become names of files."""


class StateError(Exception):
    """One line that may be told to the server."""


def write(path: Path, data: bytes) -> None:
    """For the owner's eyes only, as the folder is."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, data, 0o600)


class States:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, run: str, tag: str) -> Tensors:
        path = self._path(run, tag)
        try:
            state = framing.unpack(path.read_bytes())
            # What rounds still start from is not old, however often they are tried.
            os.utime(path, ns=(time.time_ns(),) * 2)
            return state
        except FileNotFoundError as error:
            raise StateError("the state that its round starts from is not on its disk") from error
        except framing.Damaged as error:
            raise StateError("the state that its round starts from is damaged") from error

    def save(self, run: str, tag: str, state: Tensors, keep: int, used: str | None) -> None:
        """Then drop all but the `keep` newest and the one that was `used`."""
        path = self._path(run, tag)
        write(path, framing.pack(state))
        files = sorted(path.parent.glob("*.safetensors"), key=lambda p: p.stat().st_mtime_ns)
        for old in files[: -max(keep, 1)]:
            if old.stem != used and old != path:
                old.unlink()

    def _path(self, run: str, tag: str) -> Path:
        if not (NAME.fullmatch(run) and NAME.fullmatch(tag)):
            raise StateError("the job names no run and state that could be files")
        return self.folder / run / f"{tag}.safetensors"
