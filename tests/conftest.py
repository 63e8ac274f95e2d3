"""Thread counts before anything is imported, and what several test files share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fedrl import threads

threads.pin()

import pytest  # noqa: E402

ROOT = Path(__file__).parent.parent


@pytest.fixture
def fedrl(tmp_path: Path):
    """Call the command as a user does, in an empty folder."""

    def call(*words: str, check: bool = True, **options) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "fedrl", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            **options,
        )
        assert not check or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call
