"""Which folder a node's key was let in with last, in a file beside it (`north.key.folder`).

A typing error in `--folder` would begin a new folder, and with it a policy of defaults and an ε of
zero, under a key that the coordinator knows. What cannot be written beside the key is not kept: a
service's folder is in its unit.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.private_files import require_new
from fedrl.core.types import UserError
from fedrl.engines.flower.policy import FILE

END = ".folder"


def require_none(key: Path) -> None:
    """`UserError` if a key of this name was there before, and its folder is still known."""
    require_new(_file(key))


def remember(key: Path, folder: Path) -> None:
    """That the key was made for this folder, or let in with it, if that has a policy."""
    if (folder / FILE).is_file():
        with contextlib.suppress(OSError):
            write_atomically(_file(key), f"{folder.resolve()}\n".encode(), OWNER_ONLY)


def require(key: Path, folder: Path) -> None:
    """`UserError` if this folder has no policy, and the one of the last time has, or nobody can
    tell."""
    file = _file(key)
    try:
        last = Path(file.read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        raise UserError(
            f"{file}, which says with which folder this key was used, cannot be read ({why}): mend "
            f"it, or remove it if --folder {folder} is right"
        ) from error
    if not (folder / FILE).is_file() and (last / FILE).is_file():
        raise UserError(
            f"--folder {folder} has no {FILE}, and this key was used with {last}, which has one: "
            f"is it a typing error? A new folder begins with its ε at 0 and, without a copy of "
            f"{FILE}, with the defaults"
        )


def _file(key: Path) -> Path:
    return key.with_name(key.name + END)
