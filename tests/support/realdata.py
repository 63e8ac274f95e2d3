"""Where tests find the real data; without it they are skipped and say why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def data(name: str) -> Path:
    root = os.environ.get("FEDRL_DATA")
    if not root:
        pytest.skip("set FEDRL_DATA to the folder with the real data")
    folder = Path(root) / name
    if not folder.is_dir():
        pytest.skip(f"FEDRL_DATA has no folder {name}")
    return folder


def parity() -> Path:
    """The transcripts lie beside the data, because they quote it."""
    folder = data("").parent / "parity"
    if not folder.is_dir():
        pytest.skip("no folder `parity` beside FEDRL_DATA")
    return folder
