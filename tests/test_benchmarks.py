"""The benchmark scripts run and end with their RESULT lines; what they measure is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("rounds.py",),
        ("mujoco_worlds.py",),
        ("momentum.py", "tabular"),
        ("momentum.py", "growth"),
        ("gym.py", "household"),
        ("gym.py", "webshop"),
        ("gym.py", "million", "partition"),
        ("llm.py",),
        ("discrete_worlds.py",),
        ("fedqhd.py",),
        ("dqn_sb3.py", "fedrl"),
        ("fedrlhf.py",),
        ("asynchrony.py",),
        ("secure.py", "sum"),
        pytest.param(("flower.py",), marks=pytest.mark.machines),
        pytest.param(("secure.py", "flower"), marks=pytest.mark.machines),
    ],
    ids=" ".join,
)
def test_quick_benchmarks(tmp_path, words):
    command = [sys.executable, str(FOLDER / words[0]), *words[1:], "--quick", "--json", "out.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    names = [x.split()[1] for x in done.stdout.splitlines() if x.startswith("RESULT")]
    assert names
    assert names == list(json.loads((tmp_path / "out.json").read_text())["results"])
