"""A folder that appears when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrl.core.types import UserError


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write into, which takes its name at the end.

    Nothing is left behind of one that came to no end, and what a kill left is cleared away.
    """
    if os.path.lexists(out):
        raise UserError(f"{out} exists already; name another folder, or delete it")
    part = out.with_name(f".{out.name}.part")
    with _naming(out):
        if part.exists():
            shutil.rmtree(part)
        part.mkdir(parents=True)
    try:
        yield part
        with _naming(out):
            part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _naming(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"--out {out}: cannot make this folder ({error.strerror}); name another place"
        ) from error
