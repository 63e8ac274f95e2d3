"""examples/endpoint: an agent asked in evaluation, in plain transformers and at its endpoint."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.repository import ROOT

pytest.importorskip("torch", reason="needs the extra llm")
LACKING = [n for n in ("fastapi", "uvicorn", "openai") if not importlib.util.find_spec(n)]


@pytest.mark.slow
@pytest.mark.skipif(bool(LACKING), reason=f"{', '.join(LACKING)}: not installed (fedrl[serve])")
@pytest.mark.parametrize("format", ["compact", "chat"])
def test_it_says_the_same_three_times(format: str, tmp_path: Path) -> None:
    script = ROOT / "examples" / "endpoint" / "compare.py"
    how = ("--format", format, "--steps", "30", "--prompts", "6", "--server", "transformers")
    done = subprocess.run(
        [sys.executable, str(script), *how, "--out", str(tmp_path / "made")],
        capture_output=True, text=True, timeout=500, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "6 prompts, " in done.stdout
    assert done.stdout.endswith("; 0 are not alike\n")
