"""examples/environments in a folder of one's own: a beginner is made and trained with the tool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.environments import EXAMPLES

pytest.importorskip("torch", reason="needs the extra llm")

SHORT = (
    "--seeds", "0", "--rounds", "1", "--algorithm.tasks", "2", "--algorithm.group", "2",
    "--algorithm.eval-tasks", "4", "--algorithm.device", "cpu",
)  # fmt: skip
NEEDS = {"higher_lower": "openenv.core", "word_hints": "verifiers", "prices": "transformers"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_an_agent_is_trained_in_each(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    folder = tmp_path / "environments"
    shutil.copytree(EXAMPLES / "environments", folder)
    done = subprocess.run(
        [sys.executable, str(folder / "train.py"), name, *SHORT, "--out", str(tmp_path / "runs")],
        capture_output=True, text=True, timeout=500, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("seed 0, success by round   0: ")
    (metrics,) = (tmp_path / "runs").glob("*/*/metrics.jsonl")
    last = json.loads(metrics.read_text().splitlines()[-1])
    assert last["round"] == 1
    assert last["cohort/failed"] == 0
