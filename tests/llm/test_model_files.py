"""A model's folder on the disk: who may read its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra llm")

from support.small_talkers import talker


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_weights_are_as_readable_as_the_files_beside_them(mode: int, tmp_path: Path):
    """Unless the folder is private: whoever is to serve the model may be another user."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model").chmod(mode)
    before = os.umask(0o022)
    try:
        folder = talker(tmp_path / "model", "yes no")
    finally:
        os.umask(before)
    weights = (folder / "model.safetensors").stat().st_mode & 0o777
    assert weights == (0o644 if mode == 0o755 else 0o600)
