"""Every example of an agent across two nodes of Flower, beside the same rounds in one process."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support import environments
from support.repository import ROOT

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("torch", reason="needs the extra llm")
pytestmark = [pytest.mark.slow, pytest.mark.machines, environments.needs_pip]

NEEDS = {
    "sort_digits": ("sort_digits", "torch"),
    "word_game": ("word_game", "torch"),
    "prices": ("environments", "torch"),
    "higher_lower": ("environments", "openenv.core"),
    "word_hints": ("environments", "verifiers"),
}


@pytest.mark.parametrize("name", NEEDS)
def test_two_nodes_compute_what_one_process_does(name: str, tmp_path: Path):
    package, needs = NEEDS[name]
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    python = environments.make(tmp_path / "environment")
    environments.install(tmp_path / "environment", package)
    done = subprocess.run(
        [str(python), "-m", "examples.study", "nodes", name, "--rounds", "2", "--short",
         "--work", str(tmp_path / "work"), "--records", str(tmp_path / "records")],
        cwd=ROOT, capture_output=True, text=True, timeout=900,
        env=os.environ | {"HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = (tmp_path / "records" / "nodes").glob("*.json")
    found = json.loads(file.read_text())
    assert found["failures"] == 0
    assert found["same_metrics"]
    assert found["same_parameters"]
    assert len(found["success"]) == 3
    assert found["servers"] == (2 if name == "higher_lower" else 0)
