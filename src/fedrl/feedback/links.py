"""Who may open a page: keys that are kept in the private folder, one for each person.

Whoever has the link of a person answers as that person. The folder's own key opens the page of its
only person or, where several people answer, the overview of whoever runs it.
"""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

from fedrl.core.types import UserError
from fedrl.feedback.store import PEOPLE, Folder

ADDRESS = "page.json"


class Address(NamedTuple):
    port: int
    key: str


def last_address(folder: Folder) -> Address:
    """Where the page was last time; a new key where it never was."""
    name = _file(folder)
    try:
        address = json.loads((folder.path / name).read_text(encoding="utf-8"))
        return Address(int(address["port"]), str(address["key"]))
    except FileNotFoundError:
        return Address(0, secrets.token_urlsafe(16))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder.path / name} is damaged; remove it to get a new one") from error


def save_address(folder: Folder, address: Address) -> None:
    folder.replace(_file(folder), json.dumps(address._asdict()).encode())


def renew(folder: Folder) -> None:
    """A new key: the old link opens nothing any more."""
    save_address(folder, last_address(folder)._replace(key=secrets.token_urlsafe(16)))


def _file(folder: Folder) -> str:
    return f"{PEOPLE}/{folder.person}/{ADDRESS}" if folder.person else ADDRESS
