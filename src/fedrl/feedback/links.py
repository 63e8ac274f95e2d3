"""Who may open a page: keys that are kept in the private folder, one for each person.

Whoever has the link of a person answers as that person. The folder itself has two keys: one opens
the page of its only person, the other, where several people answer, the overview of whoever runs
it. They are never the same: a person who answered alone must not read what others say later.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from fedrl.core import file_locks
from fedrl.core.types import UserError
from fedrl.feedback.store import PEOPLE, Folder

ADDRESS, SERVED = "page.json", "page.lock"


class Address(NamedTuple):
    """`site` is what links began with; "" where no page has told it.

    `people` are those who were served last; None where no page has told it. `overview` is the key
    of that page, in the folder's own address; "" where there was none yet. `place` stays where keys
    change, and opens nothing: by it a browser knows that two links are of the same person.
    """

    port: int
    key: str
    site: str = ""
    people: tuple[str, ...] | None = None
    overview: str = ""
    place: str = ""


class AlreadyServed(UserError):
    """Another process has this client's page."""


class Serving:
    """One page per client: a second one would move to another port, and links with it.

    The lock ends with its process, however that ends.
    """

    def __init__(self, folder: Folder, client: int) -> None:
        path = folder.path / SERVED
        try:
            self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            file_locks.lock(self.file, wait=False)
        except BlockingIOError:
            where = os.pread(self.file, os.fstat(self.file).st_size, 0).decode("utf-8", "replace")
            os.close(self.file)
            raise AlreadyServed(f"client {client} is already served{where}") from None

    def tell(self, links: Mapping[str, str]) -> None:
        """What opens what, for whoever comes second: the file is the folder's owner's alone."""
        told = ", ".join(f"{name} at {link}" for name, link in links.items())
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, f" by process {os.getpid()}, stop that first; {told}".encode(), 0)

    def end(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def last_address(folder: Folder) -> Address:
    """Where the page was last time; a new key where it never was."""
    name = _file(folder)
    try:
        address = json.loads((folder.path / name).read_text(encoding="utf-8"))
        people, key, overview = address.get("people"), address["key"], address.get("overview", "")
        if not overview and not folder.person and folder.people:
            key = new_key()  # of an older fedrl: it may have opened the overview
        return Address(
            int(address["port"]), str(key), str(address.get("site", "")),
            None if people is None else tuple(str(one) for one in people), str(overview),
            str(address.get("place") or new_key()),
        )  # fmt: skip
    except FileNotFoundError:
        return Address(0, new_key(), place=new_key())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder.path / name} is damaged; remove it to get a new one") from error


def new_key() -> str:
    return secrets.token_urlsafe(16)


def save_address(folder: Folder, address: Address) -> None:
    folder.replace(_file(folder), json.dumps(address._asdict()).encode())


def _file(folder: Folder) -> str:
    return f"{PEOPLE}/{folder.person}/{ADDRESS}" if folder.person else ADDRESS
