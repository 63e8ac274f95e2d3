"""The file that a command's `--plot` names: checked before the work, written after it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.core.types import UserError
from fedrl.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def figure_path(plot: str | Path) -> Path:
    """The file that a figure will be, or an error that says why it cannot be."""
    path = Path(plot)
    if not str(plot):
        raise UserError("--plot is empty; name a file such as clients.png")
    if os.path.isdir(path):  # unlike Path's own, false for a name too long for any folder
        raise UserError(f"--plot {plot} is a folder; name a file in it, such as clients.png")
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--plot {plot}: name a .png, .svg or .pdf file, such as clients.png")
    if not os.path.isdir(path.parent):
        raise UserError(f"--plot {plot}: there is no folder {path.parent}; make it first")
    if not _writable(path):
        raise UserError(f"--plot {plot}: no file can be written there; name another place")
    return path


def _writable(path: Path) -> bool:
    if os.path.exists(path):
        return os.access(path, os.W_OK)
    try:  # permissions do not tell: a file system may be read-only, or no place for files at all
        with tempfile.TemporaryFile(dir=path.parent):
            return True
    except OSError:
        return False


def save(figure: Figure, path: Path) -> None:
    try:
        plots.save(figure, path)
    except OSError as error:
        raise UserError(f"--plot {path}: cannot write it ({error.strerror or error})") from error
