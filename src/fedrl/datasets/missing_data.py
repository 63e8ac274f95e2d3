"""What all readers say alike: data that is not there, and files that cannot be read."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrl.core.types import UserError


def missing(name: str, what: str, folder: Path) -> UserError:
    """`name` is the data set's, empty for data of one's own."""
    if not name:
        return UserError(f"{folder} has no {what}")
    return UserError(
        f"{folder} has no {what}; get it with `fedrl data {name}`, or set FEDRL_DATA to the folder "
        f"that holds {name}/"
    )


@contextmanager
def readable(name: str, path: Path) -> Iterator[None]:
    """A damaged or half-copied file becomes one line that names it and the way to a good one.

    `name` is the data set's, empty for data of one's own.
    """
    try:
        yield
    except (
        EOFError, ValueError, KeyError, TypeError, zlib.error,
        lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError,
    ) as error:  # fmt: skip
        if not name:
            raise UserError(f"{path}: {_said(error)}") from error
        raise UserError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it and run "
            f"`fedrl data {name}`, or copy it anew"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _said(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
