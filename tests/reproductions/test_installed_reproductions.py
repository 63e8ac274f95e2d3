"""Reproductions as a wheel has them: in the package; records and pages in the user's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.repository import ROOT

pytest.importorskip("jax", reason="the momentum methods need jax")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The files of a wheel, as pyproject.toml says: the package, and what is put into it."""
    place = tmp_path / "site-packages"
    nothing = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    shutil.copytree(ROOT / "src" / "fedrl", place / "fedrl", ignore=nothing)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in wheel["force-include"].items():
        shutil.copytree(ROOT / source, place / target, ignore=nothing)
    return place


@pytest.mark.slow
def test_an_installed_reproduction_keeps_to_the_users_folder(installed, tmp_path):
    home = tmp_path / "home"
    home.mkdir()

    def reproduce(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fedrl", "reproduce", *words]
        environment = os.environ | {"PYTHONPATH": str(installed)}
        return subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, check=True
        )

    before = {path: path.stat().st_mtime for path in installed.rglob("*") if path.suffix != ".pyc"}
    reproduce("robustness", "--scale", "full", "--processes", "0")
    text = (home / "runs/reproduce/robustness/full/robustness.md").read_text(encoding="utf-8")
    assert "bulyan: 97% (97%), worst seed 91% †" in text  # what was published came with the package
    said = reproduce("momentum", "--scale", "smoke", "--only", "table2", "--processes", "1")
    assert "table2: beta=0.2,kappa=1.0 in" in said.stderr
    records = home / "runs/reproduce/momentum/smoke/momentum/records/table2"
    assert len(list(records.glob("*.json"))) == 4
    after = {path: path.stat().st_mtime for path in before}
    assert {path for path in before if path.is_file() and before[path] != after[path]} == set()
    assert not list(installed.rglob("records"))
