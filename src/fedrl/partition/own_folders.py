"""`strategy = "own"`: a client holds what its folder holds, all of it, and nobody deals.

    data/north/…   data/south/…   data/west/…     clients 0, 1 and 2, in the order of their names
    data/public/…                                 the coordinator's, to evaluate on

That is a simulation. On a node there is one client, whose data lies in the node's own folder
(`fedrl flower node --data`), and the driver of such a run has `public` alone: the same recipe, and
no code but this knows which of the three it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path

from fedrl.core.types import Shareable, UserError

PUBLIC = "public"
BLOCK = 1 << 20
CHANGED = "its data has changed since the run began: put it back, or begin a new run"


@dataclass(frozen=True)
class OwnFolders:
    """Where the data of each of so many clients lies. `mine` is a node's: nobody else's is here."""

    root: Path
    clients: int
    mine: Path | None = None

    def of(self, client: int) -> Path:
        return self._all()[client] if self.mine is None else self.mine

    @property
    def public(self) -> Path:
        """What is nobody's, whether it is there or not."""
        return self.root / PUBLIC

    def named(self, client: int) -> str:
        """A client for people: its number, and its folder's name where that says more."""
        return named(client, "" if self.mine is not None else self.of(client).name)

    @contextmanager
    def naming(self, client: int | None = None) -> Iterator[None]:
        """Of what is wrong with a client's data, or with nobody's, whose it is. A node has one."""
        try:
            yield
        except UserError as error:
            if self.mine is not None:
                raise
            said = f"{PUBLIC if client is None else self.named(client)}: {error}"
            shareable = isinstance(error.args[0], Shareable)
            raise UserError(Shareable(said) if shareable else said) from error

    def _all(self) -> list[Path]:
        found = client_folders(self.root)
        if len(found) != self.clients:
            names = ", ".join(place.name for place in found[:5]) + (", …" if found[5:] else "")
            raise UserError(
                f"federation.clients is {self.clients}, but {self.root} holds "
                f"{len(found)} folders of clients{f': {names}' if found else ''}"
            )
        return found

    def digests(self, clients: bool = True) -> tuple[str, ...]:
        """Of every client's data, as it is now, and of what is public, if there is such; without
        `clients` of that alone."""
        places = [self.of(client) for client in range(self.clients)] if clients else []
        places += [self.public] if self.public.is_dir() else []
        return tuple(map(digest, places))

    def require_unchanged(self, before: tuple[str, ...], clients: bool = True) -> None:
        """Refuse data that is no longer what a run began with."""
        now = self.digests(clients)
        for place, (then, found) in enumerate(zip_longest(before, now)):
            if then != found:
                whose = self.named(place) if clients and place < self.clients else str(self.public)
                raise UserError(Shareable(f"{whose}: {CHANGED}"))


def named(client: int, name: str) -> str:
    """A client's number, and its name where that says more."""
    return f"client {client}" + (f" ({name})" if name and name != str(client) else "")


def client_folders(root: Path) -> list[Path]:
    """One of each client, in the order in which people sort their names."""
    if not root.is_dir():
        raise UserError(
            f"partition.folder: there is no folder {root}; it holds a folder of each client's "
            f"data, and {PUBLIC}"
        )
    found = (
        place
        for place in root.iterdir()
        if place.is_dir() and place.name != PUBLIC and not place.name.startswith(".")
    )
    return sorted(found, key=lambda place: _in_order(place.name))


def digest(folder: Path) -> str:
    """Of all files in a folder, or of one file: their names and what they hold."""
    total = blake2b(digest_size=16)
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        total.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                total.update(block)
    return total.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(
            part.startswith(".") for part in path.relative_to(folder).parts
        ):
            yield path


def _in_order(name: str) -> list[tuple[int, str]]:
    """As people sort: `client-2` before `client-10`."""
    parts = re.split(r"(\d+)", name)
    return [(int(part) if part.isdigit() else -1, part) for part in parts]
